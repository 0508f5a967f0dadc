"""The trainer's view of a store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from draftmill_api.v1alpha1.extractrun import StateDtype
from draftmill_jobs.store import Check, Store
from draftmill_jobs.train.data import RowCorruptError
from draftmill_jobs.train.starting import StoreShape
from draftmill_jobs.train.store_rows import StoreRows
from tests.support.states import HIDDEN, binding, row, written

ROWS = [row(number, tokens=6 + number) for number in range(4)]


@pytest.mark.parametrize("dtype", list(StateDtype))
def test_rows_come_as_they_were_written(tmp_path: Path, dtype: StateDtype) -> None:
    rows = StoreRows.open(written(tmp_path, ROWS, binding=binding(dtype)), None)

    for number, meant in enumerate(ROWS):
        found = rows.read(number)
        values = torch.from_numpy((meant.states.astype(np.uint32) << 16).view(np.float32))
        assert found.token_ids.tolist() == meant.token_ids.tolist()
        assert found.mask.tolist() == (meant.loss_mask != 0).tolist()
        assert torch.allclose(found.states.float(), values, rtol=0.07, atol=0.01)


def test_the_shape_is_that_of_the_binding_in_our_convention(tmp_path: Path) -> None:
    rows = StoreRows.open(written(tmp_path, ROWS), None)

    assert rows.shape == StoreShape(layer_ids=(2, 3, 5), hidden_size=HIDDEN, layers=8)


def test_a_long_row_is_cut_alike_in_ids_mask_and_states_and_counted(tmp_path: Path) -> None:
    rows = StoreRows.open(written(tmp_path, ROWS), 7)
    found = rows.read(3)

    assert rows.cut == 2
    assert [info.tokens for info in rows.rows] == [6, 7, 7, 7]
    assert len(found.token_ids) == len(found.mask) == len(found.states) == 7
    assert found.token_ids.tolist() == ROWS[3].token_ids[:7].tolist()


def test_only_rows_answered_at_temperature_zero_are_greedy(tmp_path: Path) -> None:
    facts = [
        replace(each, facts=each.facts.model_copy(update={"temperature": t}))
        for each, t in zip(ROWS, (0.0, 0.6, None, 0.0), strict=True)
    ]
    rows = StoreRows.open(written(tmp_path, facts), None)

    assert [info.greedy for info in rows.rows] == [True, False, False, True]


def test_turns_of_one_conversation_are_split_as_one_row_of_a_prompt_is(tmp_path: Path) -> None:
    turns = [
        replace(each, facts=each.facts.model_copy(update={"conversation": conversation}))
        for each, conversation in zip(ROWS, ("a", "a", None, "b"), strict=True)
    ]
    rows = StoreRows.open(written(tmp_path, turns), None)

    assert [info.split_key for info in rows.rows] == ["a", "a", ROWS[2].facts.prompt_key, "b"]


def test_a_row_whose_bytes_have_changed_is_found_when_it_is_read(tmp_path: Path) -> None:
    written(tmp_path, ROWS)
    with Store.open(tmp_path, check=Check.HEADERS) as store:
        line = store.lines[2]
    with (tmp_path / line.shard).open("r+b") as shard:
        shard.seek(line.offset + 5)
        byte = shard.read(1)
        shard.seek(line.offset + 5)
        shard.write(bytes([byte[0] ^ 1]))
    rows = StoreRows.open(tmp_path, None)

    assert rows.read(1).mask.any()
    with pytest.raises(RowCorruptError, match=line.id):
        rows.read(2)
