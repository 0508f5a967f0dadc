"""Jobs whose pods nodes refuse. A Job's template cannot be edited: another Job has to look elsewhere."""

from __future__ import annotations

from draftmill_operator.decide.nodes import UNNAMED, left_out, rejection_problem
from draftmill_operator.decide.types import Situation
from draftmill_operator.observe.pods import UNSCHEDULABLE
from draftmill_operator.observe.types import JobState, ObservedJob, Problem
from draftmill_operator.run import Role

NODE_TRIED_AGAIN = "NodeTriedAgain"


def job_problem(situation: Situation, role: Role, job: ObservedJob) -> Problem | None:
    """What keeps a Job from working now; where nodes refuse its pods, which ones do."""
    if job.suspended or any(pod.node for pod in job.live_pods):
        return job.current_problem
    youngest = job.youngest_pod
    refused = (youngest.problem or UNNAMED) if youngest is not None and youngest.rejected else None
    problem = job.current_problem or refused
    return (rejection_problem(situation, role) or problem) if problem is not None else None


def misplaced(situation: Situation, role: Role, job: ObservedJob) -> Problem | None:
    """Why another Job is needed in place of this one; None while it may succeed.

    Nodes that are left out by now refuse its pods; or there is no room but on nodes that it is kept away
    from, though they may be tried again.
    """
    if job.state is JobState.SUCCEEDED:
        return None
    avoided = left_out(situation, role)
    refused = [pod for pod in job.pods if pod.rejected and pod.node in avoided]
    if refused and not _works(job, avoided):
        return refused[-1].problem or UNNAMED
    free = [node for node in job.avoided_nodes if node not in avoided]
    waiting = [pod.problem for pod in job.live_pods if not pod.node and pod.problem is not None]
    if free and any(problem.reason == UNSCHEDULABLE for problem in waiting):
        return Problem(NODE_TRIED_AGAIN, f"there is no room elsewhere, and node {free[0]} may be tried again")
    return None


def is_tried_again(job: ObservedJob) -> bool:
    """Whether a node refused the Job's pod, and the Job makes another one after a while."""
    pod = job.youngest_pod
    is_refused = pod is not None and pod.rejected and bool(pod.node)
    return is_refused and job.state is JobState.ACTIVE and not (job.deleting or job.together)


def _works(job: ObservedJob, avoided: set[str]) -> bool:
    """Whether a pod of it has found a node in spite of the refusals; ranks do nothing without each other."""
    if job.together:
        return False
    youngest = job.youngest_pod
    if youngest is not None and youngest.ended and not youngest.rejected:
        return True
    return any(pod.started or (pod.node and pod.node not in avoided) for pod in job.live_pods)
