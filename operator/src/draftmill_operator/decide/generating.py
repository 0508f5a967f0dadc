"""Servers and the worker's attempts."""

from __future__ import annotations

from datetime import timedelta
from typing import assert_never

from draftmill_api.names import JOB_HTTP_PORT
from draftmill_api.progress import WorkerState
from draftmill_api.v1alpha1.status import Phase
from draftmill_operator.decide.attempts import (
    Lost,
    Refused,
    Succeeded,
    accounted_rows,
    best_known_progress,
    end_of,
    record_failure,
    remaining_delay,
)
from draftmill_operator.decide.types import Decision, Situation, Wanted
from draftmill_operator.observe.types import ObservedJob, Problem

BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"
SERVERS_NOT_READY = "ServersNotReady"
WORKER_RESTARTING = "WorkerRestarting"
PROGRESS_UNREACHABLE = "ProgressUnreachable"
PATIENCE = timedelta(seconds=90)
"""Longest time from a worker's start to its first answer without a word about it."""
LOOK_AGAIN = 15.0
_AT_WORK = {WorkerState.RUNNING, WorkerState.DRAINING, WorkerState.DONE}


def attempt_over(situation: Situation) -> Decision | None:
    """An attempt that ended and is not recorded yet is recorded: as success, as failure, or as the end."""
    job = situation.seen.attempt
    if job is None or job.attempt <= situation.attempts.last_failed_attempt:
        return None
    end = end_of(job)
    match end:
        case None:
            return None
        case Succeeded():
            done = situation.attempts.model_copy(update={"succeeded": True, "count": job.attempt})
            return Decision(
                Phase.FINISHING, _generation(situation, job.attempt), attempts=done, requeue_after=0
            )
        case Refused():
            return Decision(Phase.FAILED, failed=end.problem)
        case Lost():
            return _lost(situation, job, end)
        case _:
            assert_never(end)


def servers_missing(situation: Situation) -> Decision | None:
    """Before a worker starts there has to be a server that answers; a living worker waits by itself."""
    if situation.endpoints or _living_attempt(situation) is not None:
        return None
    phase, problem = _phase(situation), situation.seen.servers.current_problem
    if problem is None and phase is Phase.RUNNING:
        problem = Problem(SERVERS_NOT_READY, "no server is ready; the next attempt waits for one")
    return Decision(phase, _generation(situation, None), problem=problem)


def next_attempt(situation: Situation) -> Decision | None:
    """A new attempt starts when its delay is over and nothing of the one before can still write."""
    if _living_attempt(situation) is not None:
        return None
    attempts = situation.attempts
    still_there = [pod for job in situation.seen.workers for pod in job.live_pods]
    still_there += [pod for pod in situation.seen.stray_worker_pods if not pod.ended]
    if still_there:
        problem = Problem(WORKER_RESTARTING, f"waiting for pod {still_there[0].name} to be gone")
        return Decision(_phase(situation), _generation(situation, None), problem=problem)
    wait = remaining_delay(attempts, situation.now)
    if wait > 0:
        problem = Problem(WORKER_RESTARTING, f"the last attempt failed: {attempts.last_failure}")
        return Decision(_phase(situation), _generation(situation, None), problem=problem, requeue_after=wait)
    newest = situation.seen.attempt
    number = 1 + max(attempts.count, attempts.last_failed_attempt, newest.attempt if newest else 0)
    return Decision(
        _phase(situation),
        _generation(situation, number),
        attempts=attempts.model_copy(update={"count": number}),
    )


def generating(situation: Situation) -> Decision | None:
    """The worker is at work, or about to be."""
    job = _living_attempt(situation)
    if job is None:
        return None
    problem = job.current_problem
    if problem is None and not situation.endpoints:
        problem = situation.seen.servers.current_problem or Problem(
            SERVERS_NOT_READY, "no server is ready; the worker waits for one"
        )
    problem = problem or _silence(situation, job)
    recorded = situation.attempts
    attempts = recorded.model_copy(update={"count": job.attempt}) if job.attempt > recorded.count else None
    return Decision(
        _phase(situation),
        _generation(situation, job.attempt),
        problem=problem,
        attempts=attempts,
        requeue_after=None if situation.seen.progress is not None else LOOK_AGAIN,
    )


def _silence(situation: Situation, job: ObservedJob) -> Problem | None:
    """A worker that runs and cannot be heard would look as if it never started."""
    if situation.seen.progress is not None:
        return None
    for pod in job.live_pods:
        if pod.running_since is not None and situation.now - pod.running_since > PATIENCE:
            return Problem(
                PROGRESS_UNREACHABLE,
                f"pod {pod.name} runs, but its port {JOB_HTTP_PORT} does not answer; "
                "does a NetworkPolicy keep the operator out?",
            )
    return None


def _lost(situation: Situation, job: ObservedJob, end: Lost) -> Decision:
    progress = best_known_progress(situation.seen, job, situation.run.status.progress)
    attempts = record_failure(situation.attempts, job.attempt, end, accounted_rows(progress), situation.now)
    if attempts.without_progress > situation.run.spec.backoff_limit:
        message = (
            f"{attempts.without_progress} attempts in a row failed without a new record; last: {end.text}"
        )
        return Decision(Phase.FAILED, attempts=attempts, failed=Problem(BACKOFF_LIMIT_EXCEEDED, message))
    return Decision(
        _phase(situation),
        _generation(situation, None),
        problem=Problem(WORKER_RESTARTING, f"attempt {job.attempt} failed: {end.text}"),
        attempts=attempts,
        requeue_after=0,
    )


def _living_attempt(situation: Situation) -> ObservedJob | None:
    """The youngest attempt, unless its failure is recorded or it is going away."""
    job = situation.seen.attempt
    if job is None or job.deleting or job.attempt <= situation.attempts.last_failed_attempt:
        return None
    return job


def _generation(situation: Situation, attempt: int | None) -> Wanted:
    return Wanted(config=True, servers=situation.run.spec.server is not None, worker=attempt)


def _phase(situation: Situation) -> Phase:
    """Running from the preflight of the first attempt on; a lost worker or server does not lead back."""
    progress = situation.seen.progress
    if situation.run.status.progress is not None:
        return Phase.RUNNING
    return Phase.RUNNING if progress is not None and progress.state in _AT_WORK else Phase.STARTING
