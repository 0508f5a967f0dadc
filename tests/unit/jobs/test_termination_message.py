from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from draftmill_api.extractjob import ExtractFinishResult
from draftmill_api.names import TERMINATION_MESSAGE_LIMIT
from draftmill_api.progress import COUNT_FIELDS, FinishResult, TerminationMessage, packed, unpacked
from draftmill_api.trainjob import TrainFinishResult
from draftmill_api.v1alpha1.status import MOST_FAILURES, ChosenConcurrency, Counts, Failure, RunProgress
from draftmill_api.v1alpha1.trainstatus import EvaluatedRate, TrainEvaluation, TrainProgress
from draftmill_jobs.shared.termination import encode

numbers = st.integers(0, 10**12)
counts = st.lists(numbers, min_size=len(COUNT_FIELDS), max_size=len(COUNT_FIELDS))
failures = st.builds(
    Failure,
    reason=st.text("A", max_size=64),
    count=numbers,
    id=st.text("a", max_size=96),
    message=st.text(max_size=1024),
)
results = st.builds(
    FinishResult,
    progress=st.builds(
        RunProgress,
        done=numbers,
        total=numbers,
        completion_tokens=numbers,
        concurrency=st.builds(
            ChosenConcurrency, inForce=numbers, settled=st.just(True), reason=st.text("r", max_size=256)
        ),
    ),
    dataset_counts=st.lists(counts, max_size=64),
    manifest=st.text("m", max_size=512),
    manifestSHA256=st.text("f", max_size=64),
    failures=st.lists(failures, max_size=MOST_FAILURES),
)


@given(results)
def test_any_finish_fits_and_is_read_again(result: FinishResult) -> None:
    data = encode(TerminationMessage(finish=result))
    assert len(data) <= TERMINATION_MESSAGE_LIMIT
    read = TerminationMessage.model_validate_json(data).finish
    assert read is not None
    assert read.progress == result.progress
    assert read.dataset_counts in (result.dataset_counts, [])


def test_the_counts_of_sixty_four_large_datasets_fit() -> None:
    each = [1_000_000, 1_000_000, 999_000, 500, 300, 200, 0, 0, 1_000_000_000]
    result = FinishResult(
        progress=RunProgress(), dataset_counts=[each] * 64, manifest="m", manifest_sha256="f" * 64
    )
    read = TerminationMessage.model_validate_json(encode(TerminationMessage(finish=result))).finish
    assert read is not None
    assert read.dataset_counts == [each] * 64


def test_counts_are_unpacked_as_they_were_packed() -> None:
    given_counts = Counts(
        done=1, total=9, ok=2, truncated=3, malformed=4, errors=5, skipped=6, not_admitted=7
    )
    unpacked_counts = unpacked("B1", packed(given_counts))
    assert unpacked_counts.model_dump(exclude={"name"}) == given_counts.model_dump()


extractions = st.builds(
    ExtractFinishResult,
    rows=numbers,
    tokens=numbers,
    bytes=numbers,
    quarantined=numbers,
    manifest=st.text("m", max_size=512),
    manifestSHA256=st.just("f" * 64),
    failures=st.lists(failures, max_size=MOST_FAILURES),
)


@given(extractions)
def test_any_finish_of_an_extraction_fits_and_is_read_again(result: ExtractFinishResult) -> None:
    data = encode(TerminationMessage(extract_finish=result))
    assert len(data) <= TERMINATION_MESSAGE_LIMIT
    read = TerminationMessage.model_validate_json(data).extract_finish
    assert read is not None
    assert read.model_copy(update={"failures": []}) == result.model_copy(update={"failures": []})


def test_the_longest_end_of_a_training_fits_and_is_read_again() -> None:
    figure, path, many = "9" * 16, "p" * 512, 10**12
    evaluation = TrainEvaluation(
        acceptance_length=figure,
        by_position=[figure] * 16,
        ratio=figure,
        cycles=many,
        tokens=many,
        answers=many,
        identical=many,
        rates=[
            EvaluatedRate(concurrency=4000 + n, plain=figure, drafting=figure, ratio=figure) for n in range(8)
        ],
    )
    progress = TrainProgress(
        epoch=1000,
        step=many,
        total=many,
        saved_step=many,
        loss=figure,
        acceptance_length=figure,
        best=figure,
        best_step=many,
        best_checkpoint="c" * 64,
        tokens=many,
        corrupt_rows=many,
        coverage=figure,
    )
    result = TrainFinishResult(
        progress=progress,
        vllm=path,
        sglang=path,
        steps=many,
        acceptance_length=figure,
        evaluation=evaluation,
        manifest=path,
        manifest_sha256="f" * 64,
    )
    data = encode(TerminationMessage(train_finish=result))
    assert len(data) <= TERMINATION_MESSAGE_LIMIT
    assert TerminationMessage.model_validate_json(data).train_finish == result
