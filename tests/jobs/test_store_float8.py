"""Float8 states: how exact they are, and that one huge value costs nothing elsewhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from draftmill_api.v1alpha1.extractrun import StateDtype
from draftmill_jobs.store import Check, Store, audit_store
from draftmill_jobs.store.float8 import decode, decoding_table, encode
from tests.support.states import HIDDEN, LAYER_IDS, bfloat16, binding, row, written

FLOAT8 = binding(StateDtype.FLOAT8)


def _values(tokens: int = 64) -> NDArray[np.float32]:
    return np.random.default_rng(1).standard_normal((tokens, len(LAYER_IDS), 256), dtype=np.float32)


def _errors(values: NDArray[np.float32], decoded: NDArray[np.float32]) -> NDArray[np.float32]:
    exact = values.astype(np.float64)
    error: NDArray[np.float32] = np.linalg.norm(exact - decoded, axis=-1) / np.linalg.norm(exact, axis=-1)
    return error


def test_every_code_means_what_torch_says() -> None:
    theirs = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float().numpy()

    assert np.array_equal(decoding_table(), theirs, equal_nan=True)


@given(st.lists(st.floats(-448, 448, width=32), min_size=1, max_size=64))
def test_values_are_rounded_as_torch_rounds(values: list[float]) -> None:
    states = np.array([*values, 448.0], np.float32).reshape(1, 1, -1)  # 448 makes the scale 1

    encoded = encode(states)

    assert encoded.scale.tolist() == [[1.0]]
    theirs = torch.from_numpy(states).to(torch.float8_e4m3fn).view(torch.uint8)
    assert torch.equal(torch.from_numpy(encoded.codes), theirs)


@pytest.mark.parametrize("factor", [1e-30, 1e-3, 1.0, 24_900.0, 1e30])
def test_the_round_trip_loses_less_than_three_percent_at_any_scale(factor: float) -> None:
    values = _values() * np.float32(factor)

    encoded = encode(values)
    errors = _errors(values, decode(encoded.codes, encoded.scale))

    assert errors.mean() < 0.03
    assert encoded.error.mean == pytest.approx(float(errors.mean()), rel=1e-3)
    assert encoded.error.worst == pytest.approx(float(errors.max()), rel=1e-3)


def test_a_huge_activation_in_one_layer_of_one_token_costs_nothing_elsewhere() -> None:
    plain, spoilt = _values(), _values()
    spoilt[10, 2, 17] = 30_000.0

    before, after = encode(plain), encode(spoilt)

    elsewhere = np.ones(plain.shape[:2], bool)
    elsewhere[10, 2] = False
    assert np.array_equal(before.codes[elsewhere], after.codes[elsewhere])
    assert np.array_equal(before.scale[elsewhere], after.scale[elsewhere])


def test_bfloat16_states_are_encoded_as_their_values() -> None:
    values = _values()
    exact = (bfloat16(values).astype(np.uint32) << 16).view(np.float32)

    assert np.array_equal(encode(bfloat16(values)).codes, encode(exact).codes)


def test_a_float8_store_gives_back_codes_scales_and_its_error(tmp_path: Path) -> None:
    rows = [row(number) for number in range(8)]
    values = np.random.default_rng(5).standard_normal((30, len(LAYER_IDS), HIDDEN), dtype=np.float32)
    rows.append(replace(row(9, 30), states=values))
    written(tmp_path, rows, binding=FLOAT8)

    with Store.open(tmp_path, check=Check.HASHES) as store:
        (found,) = (each for each in store if each.line.id == rows[-1].facts.id)
        assert found.states().dtype == torch.float8_e4m3fn
        by_torch = found.states().float() * torch.from_numpy(found.scale())[..., None]
        assert torch.equal(by_torch, torch.from_numpy(found.values()))
        assert found.line.float8_error is not None
        assert found.line.float8_error.worst == pytest.approx(_errors(values, found.values()).max(), rel=1e-3)
    error = audit_store(tmp_path).float8_error
    assert error is not None
    assert 0.01 < error.mean < error.worst < 0.06
