"""What an ExtractRun's status says of rows whose states were refused."""

from __future__ import annotations

from dataclasses import replace

from draftmill_api.progress import Progress, WorkerState
from draftmill_api.v1alpha1.runstatus import Attempts
from draftmill_api.v1alpha1.status import Failure
from draftmill_operator.decide.rules import decide
from draftmill_operator.decide.types import Situation
from draftmill_operator.kinds.base import BESIDE
from draftmill_operator.observe.types import Observed
from draftmill_operator.status.summarise import summarise
from tests.support.extractruns import extract_progress
from tests.unit.operator.builders import NOW, job, pod
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


def said_by(share: str, *, quarantined: int, failures: list[Failure]) -> Progress:
    counted = extract_progress(40, 50).model_copy(update={"quarantined": quarantined})
    return Progress(
        worker=share, state=WorkerState.RUNNING, config_hash="c", extraction=counted, failures=failures
    )
