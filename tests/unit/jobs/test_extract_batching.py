"""Rows of like length computed together, and the words of an image in which nothing can be computed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill_api.record import RecordStatus
from draftmill_api.store import RowFacts
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.extract.batching import batches
from draftmill_jobs.extract.records import Row
from tests.support.extract_job import ExtractJob
from tests.support.headed_model import make_headed_model


def row(number: int, tokens: int) -> Row:
    facts = RowFacts(
        dataset="A", id=str(number), prompt_key="", turn=0, prompt_tokens=0, status=RecordStatus.OK
    )
    return Row(facts, np.zeros(tokens, np.int32), np.ones(tokens, np.uint8))


def grouped(lengths: list[int], tokens: int) -> list[list[int]]:
    rows = (row(number, length) for number, length in enumerate(lengths))
    return [[each.tokens for each in batch] for batch in batches(rows, tokens)]


@pytest.mark.parametrize(
    ("lengths", "groups"),
    [
        ([5, 5, 5], [[5, 5], [5]]),
        ([5, 1, 1], [[5, 1], [1]]),
        ([10, 3, 3, 3], [[10], [3, 3, 3]]),
        ([25, 11, 5, 5], [[25], [11], [5, 5]]),
        ([], []),
    ],
    ids=["as many as fit", "padding counts", "a row that fills it", "longer rows go alone", "none"],
)
def test_rows_are_grouped_up_to_ten_tokens(lengths: list[int], groups: list[list[int]]) -> None:
    assert grouped(lengths, 10) == groups


@given(lengths=st.lists(st.integers(1, 50)), tokens=st.integers(1, 60))
def test_each_row_is_in_one_batch_and_no_batch_could_be_larger(lengths: list[int], tokens: int) -> None:
    lengths.sort(reverse=True)

    groups = grouped(lengths, tokens)

    assert [length for group in groups for length in group] == lengths
    assert all(len(group) == 1 or group[0] * len(group) <= tokens for group in groups)
    assert all(group[0] * (len(group) + 1) > tokens for group in groups[:-1])


async def test_an_image_without_torch_says_what_to_use(tmp_path: Path) -> None:
    job = ExtractJob(tmp_path / "job", make_headed_model(tmp_path / "model")).add_many(3)

    with pytest.raises(JobRefusedError, match="needs torch, which is not installed here") as refused:
        await job.extract()

    assert refused.value.reason == "TorchMissing"
