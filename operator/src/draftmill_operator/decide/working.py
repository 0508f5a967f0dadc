"""Servers and the workers' attempts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import assert_never

from draftmill_api.names import JOB_HTTP_PORT
from draftmill_api.progress import Concern
from draftmill_api.v1alpha1.runstatus import Attempts
from draftmill_api.v1alpha1.status import Phase
from draftmill_operator.decide.attempts import (
    Lost,
    Refused,
    Succeeded,
    end_of,
    record_failure,
    record_restart,
    restarted,
)
from draftmill_operator.decide.misplaced import is_tried_again, job_problem, misplaced
from draftmill_operator.decide.nodes import servers_held
from draftmill_operator.decide.paused import paused
from draftmill_operator.decide.starting import (
    SERVERS_NOT_READY,
    Start,
    has_worked,
    named,
    server_problem,
    start,
)
from draftmill_operator.decide.types import Decision, Situation, Wanted, Worker
from draftmill_operator.kinds.base import AnyProgress
from draftmill_operator.observe.types import ObservedJob, Problem
from draftmill_operator.run import Role

BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"
PROGRESS_UNREACHABLE = "ProgressUnreachable"
PATIENCE = timedelta(seconds=90)
"""Longest time from a worker's start to its first answer without a word about it."""
LOOK_AGAIN = 15.0


def attempt_over(situation: Situation) -> Decision | None:
    """Attempts that ended and are not recorded yet are recorded: as success, as failure, or as the end.

    So are restarts of a worker in its pod: they cost no attempt, but without progress they count as failures.
    """
    news: list[_News] = []
    for worker in situation.workers:
        heard = _news(situation, worker)
        if isinstance(heard, Refused):
            return Decision(Phase.FAILED, failed=heard.problem)
        news += [heard] if heard is not None else []
    if not news:
        return None
    facts = situation.facts.with_attempts(*(one.record for one in news))
    spent = max(facts.attempts, key=lambda record: record.without_progress)
    if spent.without_progress > situation.spec.backoff_limit:
        text = (
            f"{spent.without_progress} attempts in a row failed without progress; last: {spent.last_failure}"
        )
        return Decision(Phase.FAILED, facts=facts, failed=Problem(BACKOFF_LIMIT_EXCEEDED, text))
    all_done = all(record.succeeded for record in facts.attempts)
    over = {one.record.worker for one in news if not one.goes_on}
    going_on = {index: number for index, number in _living(situation).items() if index not in over}
    return Decision(
        Phase.FINISHING if all_done else _phase(situation),
        _wanted(situation, going_on),
        problem=next((one.failure for one in reversed(news) if one.failure is not None), None),
        warning=None if all_done else _warning(situation),
        facts=facts,
        requeue_after=0,
    )


def working(situation: Situation) -> Decision | None:
    """Workers are at work, or about to be; a missing one starts when nothing is in its way."""
    starting = start(situation)
    numbers = _living(situation) | starting.numbers
    wanted = _wanted(situation, numbers)
    decision = paused(situation, wanted)
    if decision is not None:
        return decision
    counted = [
        worker.record.model_copy(update={"count": numbers[worker.index]})
        for worker in situation.workers
        if numbers.get(worker.index, 0) > worker.record.count
    ]
    return Decision(
        _phase(situation),
        wanted,
        problem=starting.problem or _problem(situation),
        warning=_warning(situation),
        facts=replace(situation.facts.with_attempts(*counted), pause=None),
        requeue_after=_next_look(situation, starting),
    )


@dataclass(frozen=True)
class _News:
    """What became of a worker."""

    record: Attempts
    goes_on: bool
    """Its attempt still runs."""
    failure: Problem | None = None


def _news(situation: Situation, worker: Worker) -> _News | Refused | None:
    job = _unrecorded(worker)
    if job is None:
        return None
    end = end_of(job)
    if isinstance(end, Refused):
        return end
    if isinstance(end, Succeeded):
        return _News(
            worker.record.model_copy(update={"succeeded": True, "count": job.attempt}), goes_on=False
        )
    accounted = _accounted(situation, worker, job)
    elsewhere = misplaced(situation, Role.WORKER, job)
    if elsewhere is not None:
        end = Lost(f"{elsewhere.reason}: {elsewhere.message}", counts=False)
    elif isinstance(end, Lost) and is_tried_again(job):
        return None
    if isinstance(end, Lost):
        record = record_failure(worker.record, job.attempt, end, accounted, situation.now)
        failure = named(situation, worker, f"attempt {job.attempt} failed: {end.text}")
        return _News(record, goes_on=False, failure=failure)
    again = restarted(worker.record, job)
    return _News(record_restart(worker.record, again, accounted), goes_on=True) if again is not None else None


def _unrecorded(worker: Worker) -> ObservedJob | None:
    """The youngest attempt, unless its end is recorded."""
    job, record = worker.job, worker.record
    if job is None or record.succeeded or job.attempt <= record.last_failed_attempt:
        return None
    return job


def _living(situation: Situation) -> dict[int, int]:
    """Number of the attempt of each worker that has work left and a living attempt."""
    return {
        worker.index: worker.living.attempt
        for worker in situation.workers
        if worker.living is not None and not worker.record.succeeded
    }


def _wanted(situation: Situation, workers: Mapping[int, int]) -> Wanted:
    return Wanted(
        config=True,
        servers=situation.serving.apart is not None,
        replicas=servers_held(situation),
        workers=workers,
    )


def _accounted(situation: Situation, worker: Worker, job: ObservedJob) -> int:
    """Rows of the worker that need no further work, as far as is known."""
    known = _best_known(situation, worker, job)
    return situation.kind.tally.accounted(known) if known is not None else 0


def _best_known(situation: Situation, worker: Worker, job: ObservedJob) -> AnyProgress | None:
    """The newest count of a worker there is: its last words, its last answer, or what status has of it."""
    tally = situation.kind.tally
    if job.message is not None and job.message.worker is not None:
        return tally.of_result(job.message.worker)
    answer = situation.progress.get(worker.index)
    if answer is not None:
        return tally.of_answer(answer)
    return situation.run.status.progress if len(situation.workers) == 1 else None


def _problem(situation: Situation) -> Problem | None:
    """What keeps the living workers from working."""
    living = [worker for worker in situation.workers if worker.living is not None]
    for worker in living:
        found = job_problem(situation, Role.WORKER, worker.living) if worker.living is not None else None
        if found is not None:
            return found
    if living and situation.lacks_servers:
        return server_problem(situation) or Problem(
            SERVERS_NOT_READY, "no server is ready; the worker waits for one"
        )
    return next((found for worker in living if (found := _silence(situation, worker)) is not None), None)


def _silence(situation: Situation, worker: Worker) -> Problem | None:
    """A worker that runs and cannot be heard would look as if it never started."""
    if worker.index in situation.progress or worker.living is None:
        return None
    pod = worker.living.youngest_pod
    if pod is None or pod.ended or pod.running_since is None:
        return None
    if situation.now - pod.running_since <= PATIENCE:
        return None
    return Problem(
        PROGRESS_UNREACHABLE,
        f"pod {pod.name} runs, but its port {JOB_HTTP_PORT} does not answer; "
        "does a NetworkPolicy keep the operator out?",
    )


def _warning(situation: Situation) -> Problem | None:
    """What keeps one of several servers from being ready, or what a worker finds worth a look."""
    server = situation.serving.apart
    if server is not None and len(situation.endpoints) < server.replicas:
        found = server_problem(situation)
        if found is not None:
            return found
    concerned = [answer for answer in situation.progress.values() if answer.warning]
    if not concerned:
        return None
    gravest = min(concerned, key=lambda answer: list(Concern).index(answer.concern))
    match gravest.concern:
        case Concern.LENGTH_BIAS:
            return Problem("LengthBias", gravest.warning)
        case Concern.ERRORS_FREQUENT:
            return Problem("ErrorsFrequent", gravest.warning)
        case Concern.SERVER_OUT:
            return Problem("ServerOut", gravest.warning)
        case Concern.LENGTHS_FELL:
            return Problem("LengthsFell", gravest.warning)
        case _:
            assert_never(gravest.concern)


def _next_look(situation: Situation, starting: Start) -> float | None:
    if starting.wait is not None:
        return starting.wait
    unheard = any(
        worker.living is not None and worker.index not in situation.progress for worker in situation.workers
    )
    return LOOK_AGAIN if unheard else None


def _phase(situation: Situation) -> Phase:
    """Running from the preflight of the first attempt on; a lost worker or server does not lead back."""
    return Phase.RUNNING if has_worked(situation) else Phase.STARTING
