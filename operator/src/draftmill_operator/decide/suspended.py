"""Suspend: everything that the run holds goes; the files on its volume are what it goes on from."""

from __future__ import annotations

from draftmill_api.v1alpha1.status import Phase
from draftmill_operator.decide.removals import may_run
from draftmill_operator.decide.types import Decision, Situation
from draftmill_operator.observe.types import Problem

SUSPENDED = "Suspended"


def suspended(situation: Situation) -> Decision | None:
    """Nothing is wanted; the run is Suspended when the last of its pods is gone, and not before."""
    if not situation.spec.suspend:
        return None
    seen = situation.seen
    pods = [f"pod {pod.name}" for pod in seen.live_pods]
    others = [f"Job {job.name}" for job in seen.jobs if may_run(job) or job.deleting]
    if seen.servers.exists:
        others.append("the servers' Deployment")
    left = pods or others
    if left:
        more = f" and {len(left) - 1} more" if len(left) > 1 else ""
        lost = next((pod.problem for pod in seen.live_pods if pod.deleting and pod.problem), None)
        why = f": {lost.message}" if lost is not None else ""
        return Decision(
            Phase.SUSPENDING, problem=Problem(SUSPENDED, f"waiting for {left[0]}{more} to be gone{why}")
        )
    return Decision(
        Phase.SUSPENDED, problem=Problem(SUSPENDED, "spec.suspend is true; false lets the run go on")
    )
