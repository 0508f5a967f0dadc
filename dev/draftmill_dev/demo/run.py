"""The demo's runs: made anew each time, followed to their end, and shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from draftmill_dev import console, venvs
from draftmill_dev.demo import view
from draftmill_dev.demo.view import Run
from draftmill_dev.kubectl import Kubectl

EXAMPLE = venvs.REPOSITORY / "examples" / "synthrun-demo.yaml"
RUN = Run("SynthRun", "demo")
OUTPUT = "demo"
"""Folder of its answers on the data volume, as the example says."""
PROMPTS = "prompts"
_DELETED_WITHIN = "120s"


def clear(kubectl: Kubectl, runs: Sequence[Run] = (RUN,)) -> None:
    """Deletes the runs of an earlier demo, the last one first, with everything that belongs to them.

    Raises:
        DevError: Something of them stayed.
    """
    patience = ["--ignore-not-found", "--timeout", _DELETED_WITHIN]
    for run in reversed(runs):
        kubectl.run("delete", run.kind.lower(), run.name, "--cascade", "foreground", *patience)
    for name in {run.name for run in runs}:
        pods = ["pods", "--selector", f"draftmill.dev/run={name}"]
        kubectl.run("delete", *pods, "--grace-period", "1", *patience)  # those that are still draining


def start_and_show(kubectl: Kubectl, manifest: str, samples: Callable[[], str]) -> str:
    """Applies the run, shows it until it has Succeeded, and then what came of it.

    Args:
        kubectl: The cluster.
        manifest: The run as YAML.
        samples: Reads two records as text.

    Returns:
        The demo's last line: `SynthRun demo Succeeded 200/200`.

    Raises:
        DevError: The run was refused, or it failed.
    """
    with console.step(f"kubectl apply -f {EXAMPLE.relative_to(venvs.REPOSITORY)}"):
        kubectl.run("apply", "--filename", "-", given=manifest)
    status = view.follow(kubectl, RUN)
    console.say("\n$ kubectl get synthruns")
    console.say(kubectl.run("get", "synthruns").rstrip())
    console.say("\n$ draftmill sample")
    console.say(samples().rstrip())
    return last_line(status)


def last_line(status: view.Status) -> str:
    """`SynthRun demo Succeeded 200/200`."""
    progress = status["progress"]
    return f"{RUN} {status['phase']} {progress['done']}/{progress['total']}"
