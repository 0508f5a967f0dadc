"""What an ExtractRun's status says of rows whose states were refused, and of stores that do not fit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from draftmill_api.progress import Progress, WorkerState
from draftmill_api.v1alpha1.extractrun import ExtractRunStatus
from draftmill_api.v1alpha1.runstatus import Attempts
from draftmill_api.v1alpha1.status import Failure, Phase
from draftmill_operator.decide.rules import decide
from draftmill_operator.decide.types import Situation
from draftmill_operator.kinds.base import BESIDE
from draftmill_operator.observe.types import JobState, Observed, Problem
from draftmill_operator.status.summarise import summarise
from tests.support.extractruns import extract_plan_message, extract_progress
from tests.unit.operator.builders import NOW, ended_pod, job, pod
from tests.unit.operator.test_operator_extract_rendering import EXTRACT, GPU_SERVER, extract

NAN = Failure(reason="not_a_number", count=1, id="B1/0a", message="NaN in 1 of 40 vectors, the first at 3")
ZERO = Failure(reason="all_zero", count=2, id="B1/0b", message="8 of 40 vectors are zero, the first at 0")


def test_quarantined_rows_are_counted_and_named_while_the_extractors_are_at_work() -> None:
    run = extract(server=GPU_SERVER, workers=2)
    status = run.status.model_copy(update={"attempts": [Attempts(worker=n, count=1) for n in range(2)]})
    said = {
        0: said_by("0/2", quarantined=1, failures=[NAN]),
        1: said_by("1/2", quarantined=2, failures=[ZERO]),
    }
    seen = Observed(
        workers=tuple(job(pod(f"p{n}", node="n"), attempt=1, worker=n) for n in range(2)), progress=said
    )
    where = Situation(EXTRACT, replace(run, status=status), seen, (BESIDE,), (), NOW)

    told = summarise(where, decide(where))

    assert told.progress is not None
    assert told.progress.quarantined == 3
    assert sorted(told.failures, key=lambda each: each.reason) == [ZERO, NAN]


TOO_LARGE = (
    "the store needs 4.61 GB (4.61 GB for states, 5 MB for ids, masks and index), and claim eagle3 has "
    "4.61 GB; enlarge the claim, or lower maxRows or maxRowTokens"
)


@pytest.mark.parametrize(
    ("capacity", "expected"),
    [(None, None), (4_613_000_000, None), (4_612_999_999, Problem("InsufficientStorage", TOO_LARGE))],
    ids=["unknown", "exactly enough", "a byte short"],
)
def test_a_planned_store_is_compared_with_its_claim(capacity: int | None, expected: Problem | None) -> None:
    bound = extract(server=GPU_SERVER)
    run = replace(bound, status=ExtractRunStatus(input=bound.status.input))
    plan = job(ended_pod(0, extract_plan_message(1000)), state=JobState.SUCCEEDED)
    seen = Observed(plan=plan, data_capacity=capacity)

    decision = decide(Situation(EXTRACT, run, seen, (BESIDE,), (), NOW))

    assert decision.phase is (Phase.FAILED if expected else Phase.STARTING)
    assert decision.failed == expected
    assert (decision.plan is None) == (expected is not None)


def said_by(share: str, *, quarantined: int, failures: list[Failure]) -> Progress:
    counted = extract_progress(40, 50).model_copy(update={"quarantined": quarantined})
    return Progress(
        worker=share, state=WorkerState.RUNNING, config_hash="c", extraction=counted, failures=failures
    )
