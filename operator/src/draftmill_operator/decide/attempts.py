"""The attempts policy: how a worker's try ended, whether it counts, when the next one starts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from draftmill_api.exitcode import ExitCode
from draftmill_api.v1alpha1.runstatus import Attempts
from draftmill_operator.observe.pods import parse_time
from draftmill_operator.observe.types import (
    JobState,
    ObservedJob,
    ObservedPod,
    Problem,
    Termination,
)

LONGEST_DELAY: Final = 60.0
CONFIGURATION_ERROR: Final = "ConfigurationError"


@dataclass(frozen=True)
class Succeeded:
    """All rows are accounted for."""


@dataclass(frozen=True)
class Refused:
    """No attempt can succeed."""

    problem: Problem


@dataclass(frozen=True)
class Lost:
    """Another attempt may succeed."""

    text: str
    counts: bool
    """Whether it spends the backoff limit: not when it was interrupted or disrupted from outside."""


End = Succeeded | Refused | Lost


def end_of(job: ObservedJob) -> End | None:
    """How the attempt ended, or None while it may still run something."""
    if job.state is JobState.SUCCEEDED:
        return Succeeded()
    if job.suspended and job.state is JobState.ACTIVE:
        return None
    return _end_of_ranks(job) if job.together else _end_of_one(job)


def _end_of_one(job: ObservedJob) -> End | None:
    if job.live_pods:
        return next((end for pod in job.live_pods if (end := _refusal_in_place(pod)) is not None), None)
    if job.deleting:
        return Lost("its Job was deleted", counts=False)
    if job.youngest_pod is not None:
        return _end_of_pod(job.youngest_pod)
    if job.state is JobState.FAILED or job.failed_pods or job.lost_pod:
        return Lost(job.verdict.message if job.verdict else "its pod is gone", counts=True)
    return None


def _end_of_ranks(job: ObservedJob) -> End | None:
    """One rank that does not end well ends the attempt, whatever the others still do.

    They fail for want of it, so what the first one said is the reason; if any of them was disrupted, that is.
    """
    ended = sorted((pod for pod in job.pods if pod.ended), key=lambda pod: pod.finished or pod.created)
    ends = [(pod, _end_of_pod(pod)) for pod in ended]
    refused = next((end for _, end in ends if isinstance(end, Refused)), None)
    if refused is not None:
        return refused
    if job.deleting:
        return None if job.live_pods else Lost("its Job was deleted", counts=False)
    for pod, end in ends:
        if isinstance(end, Lost):
            is_disrupted = any(each.disrupted for each in job.pods)
            return Lost(f"rank {pod.rank}: {end.text}", counts=end.counts and not is_disrupted)
    if job.state is JobState.FAILED and (job.lost_pod or not job.live_pods):
        return Lost(job.verdict.message if job.verdict else "a pod of it is gone", counts=True)
    return None


@dataclass(frozen=True)
class Restarted:
    """The kubelet started the worker again in its pod: no attempt is lost, but it may be in vain."""

    times: int
    """How often in all, in this pod."""
    last: Lost


def restarted(attempts: Attempts, job: ObservedJob) -> Restarted | None:
    """Restarts in the attempt's living pod that are not recorded yet."""
    pod = job.youngest_pod
    if pod is None or pod.ended or pod.restarts <= attempts.restarts:
        return None
    end = pod.last_end
    text = end.describe() if end is not None else "it ended without a word"
    return Restarted(pod.restarts, Lost(text, counts=end is None or end.exit_code != ExitCode.INTERRUPTED))


def record_failure(attempts: Attempts, attempt: int, end: Lost, accounted: int, now: datetime) -> Attempts:
    """The record after a lost attempt."""
    return _with_failure(attempts, end, accounted).model_copy(
        update={
            "count": max(attempts.count, attempt),
            "last_failed_attempt": attempt,
            "last_failure_time": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "restarts": 0,
        }
    )


def record_restart(attempts: Attempts, restart: Restarted, accounted: int) -> Attempts:
    """The record after restarts in place, which are no attempts, but are as good as one when in vain."""
    return _with_failure(attempts, restart.last, accounted).model_copy(update={"restarts": restart.times})


def _with_failure(attempts: Attempts, end: Lost, accounted: int) -> Attempts:
    """Rows gained since the last failure set the count back."""
    gained = accounted > attempts.done_at_last_failure
    before = 0 if gained else attempts.without_progress
    return attempts.model_copy(
        update={
            "without_progress": before + (1 if end.counts and not gained else 0),
            "done_at_last_failure": max(accounted, attempts.done_at_last_failure),
            "last_failure": end.text[:1024],
        }
    )


def delay(attempts: Attempts) -> float:
    """Seconds between a failure and the next attempt: 1 after progress, doubling without, at most 60."""
    return min(LONGEST_DELAY, 2.0 ** min(attempts.without_progress, 10))


def remaining_delay(attempts: Attempts, now: datetime) -> float:
    """Seconds until the next attempt may start; 0 when it may."""
    if attempts.last_failure_time is None:
        return 0.0
    start = parse_time(attempts.last_failure_time) + timedelta(seconds=delay(attempts))
    return max(0.0, (start - now).total_seconds())


def _refusal_in_place(pod: ObservedPod) -> Refused | None:
    """The kubelet starts a worker beside a server again whatever its code was; this one is final."""
    end = pod.termination or pod.last_end
    return Refused(refusal(end)) if end is not None and end.exit_code == ExitCode.CONFIGURATION else None


def _end_of_pod(pod: ObservedPod) -> End:
    termination = pod.termination
    if termination is None:
        problem = pod.problem
        text = f"{problem.reason}: {problem.message}" if problem else "its pod ended without a word"
        return Lost(text, counts=not pod.disrupted)
    if termination.exit_code == ExitCode.DONE:
        return Succeeded()
    if termination.exit_code == ExitCode.CONFIGURATION:
        return Refused(refusal(termination))
    interrupted = termination.exit_code == ExitCode.INTERRUPTED
    return Lost(termination.describe(), counts=not (interrupted or pod.disrupted))


def refusal(termination: Termination) -> Problem:
    """Why a job ended with the configuration code."""
    message = termination.message
    if message is not None and message.refusal is not None:
        return Problem(message.refusal.reason, message.refusal.message)
    return Problem(CONFIGURATION_ERROR, termination.describe())
