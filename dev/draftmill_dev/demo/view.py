"""A run as it goes on: one line that is redrawn on a terminal, a line for each change elsewhere."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from draftmill_dev import console
from draftmill_dev.errors import DevError
from draftmill_dev.kubectl import Kubectl

Status = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """A run of some kind."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


_PERIOD = 1.0
_LONGEST_SILENCE = 15 * 60.0
_LONGEST_ABSENCE = 60.0  # of the API server
_FINISHED = ("Succeeded", "Failed")
_COUNTED = {"done": "answers", "rows": "rows", "step": "steps"}
"""What a kind's progress counts, and how that is called."""


def follow(kubectl: Kubectl, run: Run) -> Status:
    """Shows a run until it has Succeeded, and returns its status.

    Raises:
        DevError: It failed, vanished, nothing about it changed for a quarter of an hour, or the API server
            gave no answer for a minute.
    """
    with console.step(str(run)) as step:
        shown, since = "", time.monotonic()
        while True:
            status = _status(kubectl, run)
            line = describe(status)
            if line != shown:
                shown, since = line, time.monotonic()
                step.note(line)
            if status.get("phase") in _FINISHED:
                break
            if time.monotonic() - since > _LONGEST_SILENCE:
                raise DevError(f"Nothing has changed for a quarter of an hour. {_look_further(kubectl, run)}")
            time.sleep(_PERIOD)
        if status["phase"] == "Failed":
            reason, message = status.get("reason", ""), status.get("message", "")
            raise DevError(f"The run failed: {reason}: {message}\n{_look_further(kubectl, run)}")
    return status


def _status(kubectl: Kubectl, run: Run) -> Status:
    """The run's status; an API server that a busy machine starves is asked again."""
    since = time.monotonic()
    while True:
        try:
            found = kubectl.get(run.kind.lower(), run.name)
        except DevError:
            if time.monotonic() - since > _LONGEST_ABSENCE:
                raise
            time.sleep(_PERIOD)
            continue
        if found is None:
            raise DevError(f"{run} was deleted while the demo was watching it.")
        return dict(found.get("status", {}))


def describe(status: Status) -> str:
    """A status in one line: the phase, then what there is to say in it."""
    phase = status.get("phase", "")
    if not phase:
        return "waiting for the operator"
    progress = status.get("progress", {})
    if phase == "Running" and progress.get("total"):
        return f"Running: {_counts(progress)}"
    message = status.get("message", "")
    return f"{phase}: {message}" if message else str(phase)


def _counts(progress: Status) -> str:
    counted = next((name for name in _COUNTED if name in progress), "done")
    parts = [f"{progress.get(counted, 0)}/{progress['total']} {_COUNTED[counted]}"]
    if progress.get("loss"):
        parts.append(f"loss {progress['loss']}")
    if progress.get("errors"):
        parts.append(f"{progress['errors']} errors")
    if progress.get("tokensPerSecond"):
        parts.append(f"{progress['tokensPerSecond']} tok/s")
    if progress.get("eta"):
        parts.append(f"{progress['eta']} to go")
    return ", ".join(parts)


def _look_further(kubectl: Kubectl, run: Run) -> str:
    variable = "" if kubectl.kubeconfig is None else f"KUBECONFIG={kubectl.kubeconfig} "
    program = f"{variable}{kubectl.kubectl} --namespace {kubectl.namespace}"
    return (
        "Look further:\n"
        f"    {program} describe {run.kind.lower()} {run.name}\n"
        f"    {program} logs --selector draftmill.dev/run={run.name} --all-containers --tail 50"
    )
