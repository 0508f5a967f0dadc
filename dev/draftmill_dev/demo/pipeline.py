"""The demo of all three kinds: from prompts to a drafter that is measured at work."""

from __future__ import annotations

from collections.abc import Callable

from draftmill_dev import console, venvs
from draftmill_dev.demo import view
from draftmill_dev.demo.view import Run
from draftmill_dev.kubectl import Kubectl

EXAMPLE = venvs.REPOSITORY / "examples" / "pipeline-demo.yaml"
NAME = "pipeline"
RUNS = tuple(Run(kind, NAME) for kind in ("SynthRun", "ExtractRun", "DrafterTrain"))
"""In the order in which they wait for each other."""
OUTPUT = "pipeline"
"""Folder of all that they write, on the data volume."""
DRAFTER = f"{OUTPUT}/drafter"
ROWS = 120


def start_and_show(kubectl: Kubectl, lineage: Callable[[], str]) -> str:
    """Applies the runs together, shows each until it has Succeeded, and then what came of them.

    Args:
        kubectl: The cluster.
        lineage: Reads the drafter's way back to its prompts as text.

    Returns:
        The demo's last line.

    Raises:
        DevError: A run was refused, or it failed.
    """
    with console.step(f"kubectl apply -f {EXAMPLE.relative_to(venvs.REPOSITORY)}"):
        kubectl.run("apply", "--filename", "-", given=EXAMPLE.read_text())
    statuses = [view.follow(kubectl, run) for run in RUNS]
    for run in RUNS:
        console.say(f"\n$ kubectl get {run.kind.lower()}s --output wide")
        console.say(kubectl.run("get", f"{run.kind.lower()}s", run.name, "--output", "wide").rstrip())
    console.say("\n$ draftmill lineage")
    console.say(lineage().rstrip())
    return last_line(statuses[-1])


def last_line(status: view.Status) -> str:
    """`DrafterTrain pipeline Succeeded: acceptance length 1.31 over 498 cycles, 40/40 answers the same`."""
    found = status["evaluation"]
    return (
        f"{RUNS[-1]} {status['phase']}: acceptance length {found['acceptanceLength']} over "
        f"{found['cycles']} cycles, {found['identical']}/{found['answers']} answers the same"
    )
