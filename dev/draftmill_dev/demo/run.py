"""The demo's run: made anew each time, followed to its end, and shown."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from draftmill_dev import console, venvs
from draftmill_dev.demo import view
from draftmill_dev.errors import DevError
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
    kubectl.run(
        "delete", "synthrun", NAME,
        "--ignore-not-found", "--cascade", "foreground", "--timeout", _DELETED_WITHIN,
    )  # fmt: skip


def start_and_follow(kubectl: Kubectl, manifest: str) -> dict[str, Any]:
    """Applies the run and shows it until it has Succeeded; returns its status.

    Raises:
        DevError: It was refused, or it failed.
    """
    with console.step(f"kubectl apply -f {EXAMPLE.relative_to(venvs.REPOSITORY)}"):
        kubectl.run("apply", "--filename", "-", given=manifest)
    return view.follow(kubectl, NAME)


def show(kubectl: Kubectl) -> None:
    """Prints the run as kubectl shows it."""
    console.say("\n$ kubectl get synthruns")
    console.say(kubectl.run("get", "synthruns").rstrip())


def show_samples(folder: Path) -> None:
    """Prints two records as a person reads them.

    Raises:
        DevError: The folder holds none.
    """
    program = venvs.development() / "bin" / "draftmill"
    console.say(f"\n$ draftmill sample {folder} --count 2")
    done = subprocess.run(
        [program, "sample", str(folder), "--count", "2"], check=False, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise DevError(f"draftmill sample failed: {done.stderr.strip()}")
    console.say(done.stdout.rstrip())


def last_line(status: dict[str, Any]) -> str:
    """`SynthRun demo Succeeded 200/200`."""
    progress = status["progress"]
    return f"SynthRun {NAME} {status['phase']} {progress['done']}/{progress['total']}"
