"""Which children are no longer wanted. Finished Jobs of an ended step stay, for their logs."""

from __future__ import annotations

from draftmill_api.exitcode import ExitCode
from draftmill_operator.decide.types import Decision, Situation
from draftmill_operator.observe.types import JobState, ObservedJob
from draftmill_operator.run import Role

_FINAL_CODES = {ExitCode.DONE, ExitCode.CONFIGURATION}


def unwanted_jobs(decision: Decision, situation: Situation) -> tuple[ObservedJob, ...]:
    """Jobs to delete, with their pods."""
    seen, wanted = situation.seen, decision.wanted
    unwanted = []
    if seen.plan is not None and (decision.redo is Role.PLAN or (not wanted.plan and may_run(seen.plan))):
        unwanted.append(seen.plan)
    if seen.finish is not None and _is_old(decision, Role.FINISH, seen.finish, is_wanted=wanted.finish):
        unwanted.append(seen.finish)
    for role, job in seen.evaluations.items():
        if _is_old(decision, role, job, is_wanted=wanted.evaluation is role):
            unwanted.append(job)
    outdated = set(situation.outdated_jobs) if wanted.config else set()
    for job in seen.workers:
        current = wanted.workers.get(job.worker)
        replaced = current is not None and job.attempt < current
        if job in outdated or (job.attempt != current and (may_run(job) or replaced)):
            unwanted.append(job)
    return tuple(job for job in unwanted if not job.deleting)


def may_run(job: ObservedJob) -> bool:
    """Whether the Job runs something or would start a pod again.

    One that has succeeded does not: a pod of it that looks alive has ended, and the watch of pods is late.
    """
    if job.state is JobState.SUCCEEDED:
        return False
    if job.live_pods:
        return True
    termination = job.last_termination
    final = termination is not None and termination.exit_code in _FINAL_CODES
    return job.state is JobState.ACTIVE and not final


def _is_old(decision: Decision, role: Role, job: ObservedJob, *, is_wanted: bool) -> bool:
    """It is to be done again, or has to do with what workers have gone on with since."""
    if decision.redo is role:
        return True
    return not is_wanted and (may_run(job) or bool(decision.wanted.workers))
