"""Shards are plain safetensors files, and rows come back as they were."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from draftmill_api.store import ComputedIn
from draftmill_api.v1alpha1.extractrun import StateDtype
from draftmill_jobs.store import Check, Store
from tests.support.states import HIDDEN, LAYER_IDS, binding, row, written

ROWS = [row(number) for number in range(12)]


def _torch(bits: np.ndarray[tuple[int, ...], np.dtype[np.uint16]]) -> torch.Tensor:
    return torch.from_numpy(bits.view(np.int16).copy()).view(torch.bfloat16)


def test_a_shard_is_a_safetensors_file_of_the_documented_tensors(tmp_path: Path) -> None:
    (shard,) = written(tmp_path, ROWS, shard_bytes=1 << 20).glob("*.safetensors")

    tensors = load_file(shard)

    assert set(tensors) == {
        f"{index}.{name}" for index in range(12) for name in ("states", "token_ids", "loss_mask")
    }
    for index, each in enumerate(ROWS):
        assert torch.equal(tensors[f"{index}.states"], _torch(each.states.view(np.uint16)))
        assert tensors[f"{index}.token_ids"].dtype == torch.int32
        assert tensors[f"{index}.token_ids"].tolist() == each.token_ids.tolist()
        assert tensors[f"{index}.loss_mask"].dtype == torch.uint8
        assert tensors[f"{index}.loss_mask"].tolist() == each.loss_mask.tolist()


def test_a_shard_says_which_layers_it_holds_and_in_which_convention(tmp_path: Path) -> None:
    (shard,) = written(tmp_path, ROWS[:1]).glob("*.safetensors")

    with safe_open(shard, "pt") as file:
        metadata = file.metadata()

    assert metadata["layer_ids"] == "2 3 5 8"
    assert metadata["layer_convention"] == "entering layer"
    assert metadata["last_state"] == "pre-norm"


@pytest.mark.parametrize("dtype", list(StateDtype))
def test_every_tensor_lies_at_a_multiple_of_its_item_size(tmp_path: Path, dtype: StateDtype) -> None:
    written(tmp_path, ROWS, binding=binding(dtype))

    with Store.open(tmp_path, check=Check.HASHES) as store:
        for each in store:
            assert each.token_ids.flags.aligned
            assert each.bits().flags.aligned
            assert each.line.offset % 4 == 0


@pytest.mark.parametrize("dtype", [StateDtype.BFLOAT16, StateDtype.FLOAT32])
def test_rows_come_back_exactly(tmp_path: Path, dtype: StateDtype) -> None:
    written(tmp_path, ROWS, binding=binding(dtype))

    with Store.open(tmp_path, check=Check.HASHES) as store:
        found = {each.line.id: each for each in store}
        for each in ROWS:
            stored = found[each.facts.id]
            assert torch.equal(stored.states().float(), _torch(each.states.view(np.uint16)).float())
            assert torch.equal(torch.from_numpy(stored.values().copy()), stored.states().float())
            assert stored.token_ids.tolist() == each.token_ids.tolist()
            assert stored.loss_mask.tolist() == each.loss_mask.tolist()
            assert stored.line.prompt_tokens == 2
            assert stored.line.key == each.facts.key


def test_a_float32_row_is_rounded_to_bfloat16_as_torch_rounds(tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal((50, len(LAYER_IDS), HIDDEN), dtype=np.float32)
    each = row(0, 50)
    written(tmp_path, [replace(each, states=values, computed_in=ComputedIn.FLOAT32)])

    with Store.open(tmp_path, check=Check.HASHES) as store:
        assert torch.equal(store[0].states(), torch.from_numpy(values).bfloat16())


def test_a_torch_tensor_is_the_map_itself(tmp_path: Path) -> None:
    written(tmp_path, ROWS)

    with Store.open(tmp_path, check=Check.HEADERS) as store:
        each = store[7]
        start = np.frombuffer(each._memory, np.uint8).ctypes.data
        assert each.states().data_ptr() == start + each.line.offset
        assert each.token_ids.ctypes.data == each.states().data_ptr() + each.states().nbytes


def test_a_tensor_outlives_its_store(tmp_path: Path) -> None:
    written(tmp_path, ROWS)
    with Store.open(tmp_path, check=Check.HEADERS) as store:
        states, expected = store[0].states(), store[0].values().copy()

    assert torch.equal(states.float(), torch.from_numpy(expected))


def test_writing_to_a_tensor_does_not_change_the_store(tmp_path: Path) -> None:
    written(tmp_path, ROWS)
    with Store.open(tmp_path, check=Check.HEADERS) as store:
        store[0].states().zero_()

    with Store.open(tmp_path, check=Check.HASHES) as store:
        assert store[0].values().any()


def test_a_shard_is_sealed_when_the_next_row_would_make_it_too_large(tmp_path: Path) -> None:
    written(tmp_path, ROWS, shard_bytes=20_000)

    shards = list(tmp_path.glob("*.safetensors"))

    assert len(shards) > 1
    assert all(shard.stat().st_size <= 20_000 for shard in shards)


def test_a_row_larger_than_a_shard_gets_one_of_its_own(tmp_path: Path) -> None:
    written(tmp_path, [row(0, 3), row(1, 300), row(2, 3)], shard_bytes=20_000)

    with Store.open(tmp_path, check=Check.HASHES) as store:
        assert [each.line.shard for each in store] == [f"states-w0-{n}.safetensors" for n in (0, 1, 2)]


def test_a_shard_is_sealed_before_its_header_is_full(tmp_path: Path) -> None:
    rows = [row(number, 3) for number in range(60)]
    written(tmp_path, rows, shard_bytes=1 << 30, header_bytes=4096)

    shards = sorted(tmp_path.glob("*.safetensors"))

    assert len(shards) > 1
    assert sum(len(load_file(shard)) for shard in shards) == 3 * 60
    with Store.open(tmp_path, check=Check.HASHES) as store:
        assert len(store) == 60


def test_rows_are_read_in_the_order_asked_for(tmp_path: Path) -> None:
    written(tmp_path, ROWS)

    with Store.open(tmp_path, check=Check.HEADERS) as store:
        names = [each.line.id for each in store.in_order([5, 0, 5, 11])]
        assert names == [store.lines[index].id for index in (5, 0, 5, 11)]


def test_sealed_shards_can_be_read_while_the_writer_goes_on(tmp_path: Path) -> None:
    from tests.support.states import writer

    with writer(tmp_path, shard_bytes=6_000) as open_writer:
        for each in ROWS:
            open_writer.append(each, lambda: None)
        open_writer.flush()
        with Store.open(tmp_path, check=Check.HASHES) as store:
            assert 0 < len(store) < len(ROWS)
            assert store.manifest is None
