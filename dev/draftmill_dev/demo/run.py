"""The demo's run: made anew each time, followed to its end, and shown."""

from __future__ import annotations

from collections.abc import Callable

from draftmill_dev import console, venvs
from draftmill_dev.demo import view
from draftmill_dev.kubectl import Kubectl

EXAMPLE = venvs.REPOSITORY / "examples" / "synthrun-demo.yaml"
NAME = "demo"
OUTPUT = "demo"
"""Folder of its answers on the data volume, as the example says."""
PROMPTS = "prompts"
_DELETED_WITHIN = "120s"


def clear(kubectl: Kubectl) -> None:
    """Deletes the run of an earlier demo with everything that belongs to it.

    Raises:
        DevError: Something of it stayed.
    """
    patience = ["--ignore-not-found", "--timeout", _DELETED_WITHIN]
    kubectl.run("delete", "synthrun", NAME, "--cascade", "foreground", *patience)
    pods = ["pods", "--selector", f"draftmill.dev/run={NAME}"]
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
    status = view.follow(kubectl, NAME)
    console.say("\n$ kubectl get synthruns")
    console.say(kubectl.run("get", "synthruns").rstrip())
    console.say("\n$ draftmill sample")
    console.say(samples().rstrip())
    return last_line(status)


def last_line(status: view.Status) -> str:
    """`SynthRun demo Succeeded 200/200`."""
    progress = status["progress"]
    return f"SynthRun {NAME} {status['phase']} {progress['done']}/{progress['total']}"
