"""Which children are no longer wanted. Finished Jobs of an ended step stay, for their logs."""

from __future__ import annotations

from draftmill_api.exitcode import ExitCode
from draftmill_operator.decide.types import Decision
from draftmill_operator.observe.types import JobState, Observed, ObservedJob
from draftmill_operator.run import Role

_FINAL_CODES = {ExitCode.DONE, ExitCode.CONFIGURATION}


def unwanted_jobs(decision: Decision, seen: Observed) -> tuple[ObservedJob, ...]:
    """Jobs to delete, with their pods."""
    steps = ((Role.PLAN, seen.plan, decision.wanted.plan), (Role.FINISH, seen.finish, decision.wanted.finish))
    unwanted = [
        job
        for role, job, wanted in steps
        if job is not None and (decision.redo is role or (not wanted and may_run(job)))
    ]
    current = decision.wanted.worker
    unwanted += [
        job
        for job in seen.workers
        if job.attempt != current and (may_run(job) or (current is not None and job.attempt < current))
    ]
    return tuple(job for job in unwanted if not job.deleting)


def may_run(job: ObservedJob) -> bool:
    """Whether the Job runs something or would start a pod again."""
    if job.live_pods:
        return True
    termination = job.last_termination
    final = termination is not None and termination.exit_code in _FINAL_CODES
    return job.state is JobState.ACTIVE and not final
