from __future__ import annotations

from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from draftmill_api.v1alpha1.runstatus import Attempts
from draftmill_operator.decide.attempts import (
    End,
    Lost,
    Refused,
    Restarted,
    Succeeded,
    delay,
    end_of,
    record_failure,
    record_restart,
    remaining_delay,
    restarted,
)
from draftmill_operator.observe.types import JobState, ObservedJob, ObservedPod, Problem, Termination
from tests.support.played import refusal_message, worker_message
from tests.unit.operator.builders import NOW, ended_pod, job, pod


def case(name: str, *values: Any) -> Any:
    return pytest.param(*values, id=name)


@pytest.mark.parametrize(
    ("worker", "expected"),
    [
        case("its pod runs", job(pod()), None),
        case("its pod is being deleted", job(pod(deleting=True)), None),
        case("it has no pod yet", job(), None),
        case("Job complete", job(state=JobState.SUCCEEDED), Succeeded()),
        case("exit 0, Job not told yet", job(ended_pod(0)), Succeeded()),
        case(
            "exit 2 with a sentence",
            job(ended_pod(2, refusal_message("PreflightFailed", "ids differ"))),
            Refused(Problem("PreflightFailed", "ids differ")),
        ),
        case(
            "exit 2 without",
            job(ended_pod(2, text="boot\nwrong key\n")),
            Refused(Problem("ConfigurationError", "exit code 2: wrong key")),
        ),
        case("killed", job(ended_pod(137, text="")), Lost("exit code 137", counts=True)),
        case("error with a log", job(ended_pod(1, text="a\nb")), Lost("exit code 1: b", counts=True)),
        case("interrupted", job(ended_pod(75)), Lost("exit code 75", counts=False)),
        case("drained", job(ended_pod(137, disrupted=True)), Lost("exit code 137", counts=False)),
        case(
            "evicted before it ran",
            job(pod(ended=True, problem=Problem("Evicted", "low on memory"))),
            Lost("Evicted: low on memory", counts=True),
        ),
        case("pod seen to vanish", job(lost_pod=True), Lost("its pod is gone", counts=True)),
        case("taken back by a queue", job(ended_pod(75), suspended=True, lost_pod=True), None),
        case("pod gone", job(failed_pods=1), Lost("its pod is gone", counts=True)),
        case("Job being deleted", job(deleting=True), Lost("its Job was deleted", counts=False)),
        case(
            "Job gave up",
            job(state=JobState.FAILED, verdict=Problem("BackoffLimitExceeded", "too many")),
            Lost("too many", counts=True),
        ),
        case(
            "the Job's own second pod runs",
            job(ended_pod(1, name="a"), pod("b", created=NOW + timedelta(seconds=9)), failed_pods=1),
            None,
        ),
    ],
)
def test_how_an_attempt_ended(worker: ObservedJob, expected: End | None) -> None:
    assert end_of(worker) == expected


def rank(number: int, code: int | None = None, text: str = "", **fields: Any) -> ObservedPod:
    """A pod among several that work as one; it has ended when it has a code."""
    if code is None:
        return pod(f"rank-{number}", rank=number, **fields)
    return ended_pod(code, text=text, name=f"rank-{number}", rank=number, **fields)


def ranks(*pods: ObservedPod, **fields: Any) -> ObservedJob:
    return job(*pods, together=True, **fields)


SOON, THEN = NOW + timedelta(seconds=1), NOW + timedelta(seconds=2)


@pytest.mark.parametrize(
    ("trainer", "expected"),
    [
        case("all run", ranks(rank(0), rank(1)), None),
        case("one has ended well, the other runs", ranks(rank(0, 0), rank(1)), None),
        case("all have ended well, Job not told yet", ranks(rank(0, 0), rank(1, 0)), None),
        case("Job complete", ranks(rank(0, 0), rank(1, 0), state=JobState.SUCCEEDED), Succeeded()),
        case(
            "one is killed while the other runs on",
            ranks(rank(0), rank(1, 137)),
            Lost("rank 1: exit code 137", counts=True),
        ),
        case(
            "the first that ended is the reason",
            ranks(rank(0, 1, "lost rank 1", finished=THEN), rank(1, 1, "no memory", finished=SOON)),
            Lost("rank 1: exit code 1: no memory", counts=True),
        ),
        case(
            "one refuses, whenever it ended",
            ranks(rank(0, 1, finished=SOON), rank(1, 2, "no CUDA", finished=THEN)),
            Refused(Problem("ConfigurationError", "exit code 2: no CUDA")),
        ),
        case(
            "one is drained and the others fail for want of it",
            ranks(rank(0, 1, "lost rank 1"), rank(1, disrupted=True)),
            Lost("rank 0: exit code 1: lost rank 1", counts=False),
        ),
        case(
            "all are interrupted",
            ranks(rank(0, 75), rank(1, 75)),
            Lost("rank 0: exit code 75", counts=False),
        ),
        case("one has vanished, Job not told yet", ranks(rank(0), lost_pod=True), None),
        case(
            "one has vanished",
            ranks(rank(0), lost_pod=True, state=JobState.FAILED, verdict=Problem("R", "too many")),
            Lost("too many", counts=True),
        ),
        case("Job gave up, its pods are not heard yet", ranks(rank(0), rank(1), state=JobState.FAILED), None),
        case("Job being deleted", ranks(rank(0), deleting=True), None),
        case("Job deleted, pods gone", ranks(deleting=True), Lost("its Job was deleted", counts=False)),
    ],
)
def test_one_rank_that_does_not_end_well_ends_the_attempt(trainer: ObservedJob, expected: End | None) -> None:
    assert end_of(trainer) == expected


def test_of_ranks_the_first_one_speaks() -> None:
    told = ranks(
        ended_pod(0, worker_message(5, 5), name="a", rank=0),
        ended_pod(0, worker_message(0, 5), name="b", rank=1, created=SOON),
    )
    assert told.message == worker_message(5, 5)
    assert told.youngest_pod == told.pods[0]


def test_an_attempt_that_said_how_far_it_came_has_not_succeeded_by_that() -> None:
    assert isinstance(end_of(job(ended_pod(75, worker_message(5, 100)))), Lost)


COUNTED = Lost("exit code 137", counts=True)
INTERRUPTED = Lost("exit code 75", counts=False)


class Row(NamedTuple):
    """Failures in a row and rows at the last one; rows now and the new end; what follows."""

    same: int
    before: int
    accounted: int
    end: Lost
    same_after: int
    delay: float


@pytest.mark.parametrize(
    "row",
    [
        case("first failure at nothing", Row(0, 0, 0, COUNTED, 1, 2)),
        case("killed after progress", Row(0, 0, 40, COUNTED, 0, 1)),
        case("killed again, nothing new", Row(1, 40, 40, COUNTED, 2, 4)),
        case("progress sets it back", Row(5, 40, 41, COUNTED, 0, 1)),
        case("interrupted, nothing new", Row(2, 40, 40, INTERRUPTED, 2, 4)),
        case("interrupted after progress", Row(2, 40, 50, INTERRUPTED, 0, 1)),
        case("many", Row(30, 40, 40, COUNTED, 31, 60)),
        case("an unknown count is no progress", Row(1, 40, 0, COUNTED, 2, 4)),
    ],
)
def test_failures_without_progress_are_counted(row: Row) -> None:
    attempts = Attempts(
        worker=0, count=3, without_progress=row.same, done_at_last_failure=row.before, last_failed_attempt=2
    )
    after = record_failure(attempts, 3, row.end, row.accounted, NOW)
    assert after.without_progress == row.same_after
    assert delay(after) == row.delay
    assert after.last_failed_attempt == 3
    assert after.done_at_last_failure == max(row.before, row.accounted)
    assert after.last_failure == row.end.text


def test_the_delay_runs_from_the_failure() -> None:
    attempts = record_failure(Attempts(worker=0, count=1), 1, COUNTED, 0, NOW)
    assert remaining_delay(attempts, NOW) == 2
    assert remaining_delay(attempts, NOW + timedelta(seconds=1)) == 1
    assert remaining_delay(attempts, NOW + timedelta(seconds=5)) == 0
    assert remaining_delay(Attempts(worker=0), NOW) == 0


def again(times: int, code: int = 137) -> ObservedJob:
    """An attempt whose worker was started so often again in its pod."""
    return job(pod(restarts=times, last_end=Termination(code, "Error", "", None)))


@pytest.mark.parametrize(
    ("worker", "counted", "expected"),
    [
        case("never", again(0), 0, None),
        case("once", again(1), 0, Restarted(1, COUNTED)),
        case("counted before", again(1), 1, None),
        case("twice unheard", again(3), 1, Restarted(3, COUNTED)),
        case("interrupted", again(1, 75), 0, Restarted(1, INTERRUPTED)),
        case("another pod", again(1), 4, None),
        case("its pod ended", job(ended_pod(137, restarts=2)), 0, None),
    ],
)
def test_restarts_in_a_living_pod_are_heard_once(
    worker: ObservedJob, counted: int, expected: Restarted | None
) -> None:
    assert restarted(Attempts(worker=0, count=1, restarts=counted), worker) == expected


def test_a_restart_in_vain_counts_as_a_failure_and_delays_nothing() -> None:
    attempts = Attempts(worker=0, count=1, without_progress=1, done_at_last_failure=40)
    in_vain = record_restart(attempts, Restarted(2, COUNTED), 40)
    assert (in_vain.without_progress, in_vain.restarts, in_vain.count) == (2, 2, 1)
    assert in_vain.last_failed_attempt == 0
    assert remaining_delay(in_vain, NOW) == 0
    after_progress = record_restart(in_vain, Restarted(3, COUNTED), 41)
    assert (after_progress.without_progress, after_progress.restarts) == (0, 3)


def test_the_next_attempt_counts_its_own_restarts() -> None:
    lost = record_failure(Attempts(worker=0, count=1, restarts=4), 1, COUNTED, 0, NOW)
    assert lost.restarts == 0


def test_a_refusal_is_final_though_the_kubelet_starts_the_worker_again() -> None:
    refused = Termination(2, "Error", "", refusal_message("PreflightFailed", "ids differ"))
    for place in ({"last_end": refused, "restarts": 1}, {"termination": refused}):
        assert end_of(job(pod(**place))) == Refused(Problem("PreflightFailed", "ids differ"))
