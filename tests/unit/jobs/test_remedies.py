"""Whatever a dead letter says has failed, the run's status says what to do about it."""

from __future__ import annotations

from pathlib import Path

from draftmill_api.names import TERMINATION_MESSAGE_LIMIT
from draftmill_api.progress import FinishResult, TerminationMessage
from draftmill_api.v1alpha1.status import MOST_FAILURES, Failure, RunProgress
from draftmill_jobs.engines.failures import FailureKind, RequestFailedError, Verdict
from draftmill_jobs.engines.remedies import REMEDIES, remedy_for
from draftmill_jobs.extract import remedies as of_states
from draftmill_jobs.extract.quarantine import Quarantine
from draftmill_jobs.extract.records import Row
from draftmill_jobs.shared.termination import encode
from draftmill_jobs.store import RowFault
from tests.support.engine_server import EngineServer, Fail, Reply
from tests.support.job import Job
from tests.support.states import ALONE, RUN, row

_WRITTEN = {kind for kind in FailureKind if RequestFailedError(kind, "").verdict is not Verdict.STOP}
_OF_PROMPTS_AND_ANSWERS = {
    FailureKind.ABORTED,
    FailureKind.COUNT_MISMATCH,
    FailureKind.PREVIOUS_TURN,
    FailureKind.TEMPLATE_REFUSED,
    FailureKind.UNUSABLE_ROW,
}
"""What no request for states meets: its prompt is token ids, and its answer is not read."""


def test_every_reason_of_a_dead_letter_has_a_remedy_of_its_own() -> None:
    assert set(REMEDIES) == _WRITTEN
    assert len(set(REMEDIES.values())) == len(REMEDIES)
    assert max(map(len, REMEDIES.values())) <= 120, "ten of them must fit into a termination message"


def test_every_reason_of_a_quarantined_row_has_a_remedy_of_its_own() -> None:
    written = {*RowFault, of_states.NOT_STAGED, *(_WRITTEN - _OF_PROMPTS_AND_ANSWERS)}

    assert set(of_states.REMEDIES) == written
    assert len(set(of_states.REMEDIES.values())) == len(of_states.REMEDIES)
    assert max(map(len, of_states.REMEDIES.values())) <= 120, "as above"


def test_a_reason_that_another_version_wrote_has_none() -> None:
    assert remedy_for("struck_by_lightning") == ""
    assert of_states.remedy_for("struck_by_lightning") == ""


def test_rows_without_states_are_told_of_with_the_remedy(tmp_path: Path) -> None:
    found = row(1)
    quarantine = Quarantine(tmp_path, RUN, ALONE)
    quarantine.add(Row(found.facts, found.token_ids, found.loss_mask), "all_zero", "zeros", 2)
    quarantine.close()

    (failure,) = quarantine.failures()

    assert failure.remedy == of_states.REMEDIES[RowFault.ALL_ZERO]


async def test_progress_and_finish_name_the_remedy(job: Job, server: EngineServer) -> None:
    server.script = lambda request: Fail(400) if request.number == 0 else Reply()
    job.datasets["A"] = [*job.datasets["A"], {"nothing": 1}]
    await job.use(server).generate()
    failures = {failure.reason: failure.remedy for failure in job.finish().failures}
    assert failures == {
        "bad_request": "correct the row in its source as the message says, or leave it out",
        "unusable_row": "correct the row in its source: it must hold a prompt in a known shape",
    }


def finished(message: str, datasets: int) -> bytes:
    failures = [
        Failure(reason=kind.value, count=10**6, id="f" * 36, message=message, remedy=REMEDIES[kind])
        for kind in sorted(_WRITTEN, key=lambda kind: -len(REMEDIES[kind]))[:MOST_FAILURES]
    ]
    result = FinishResult(
        progress=RunProgress(),
        dataset_counts=[[10**6] * 9] * datasets,
        manifest="m" * 100,
        manifest_sha256="f" * 64,
        failures=failures,
    )
    return encode(TerminationMessage(finish=result))


def read(data: bytes) -> FinishResult:
    assert len(data) <= TERMINATION_MESSAGE_LIMIT
    result = TerminationMessage.model_validate_json(data).finish
    assert result is not None
    return result


def test_remedies_stay_in_the_last_words_of_an_ordinary_run() -> None:
    result = read(finished("x" * 300, datasets=4))
    assert all(failure.remedy for failure in result.failures)
    assert len(result.dataset_counts) == 4


def test_remedies_are_left_out_before_the_words_and_counts_of_single_rows_and_datasets() -> None:
    result = read(finished("x" * 300, datasets=25))
    assert not any(failure.remedy for failure in result.failures)
    assert all(failure.message for failure in result.failures)
    assert len(result.dataset_counts) == 25
