"""Which states are refused, and in which words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from draftmill_api.v1alpha1.extractrun import StateDtype
from draftmill_jobs.store import RowFault, RowRefusedError, StoreRow
from draftmill_jobs.store.checks import check_row, largest_magnitudes
from tests.support.states import HIDDEN, LAYER_IDS, bfloat16, binding, row, writer

TOKENS = 40


def _float32(number: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(number).standard_normal((TOKENS, len(LAYER_IDS), HIDDEN), dtype=np.float32)


def _check(states: NDArray[Any], layer_ids: list[int] = LAYER_IDS) -> None:
    ids = np.arange(len(states), dtype=np.int32)
    check_row(states, token_ids=ids, returned_ids=ids, layer_ids=layer_ids, hidden_size=HIDDEN)


def _spoilt(place: tuple[Any, ...], value: float) -> NDArray[np.float32]:
    states = _float32()
    states[place] = value
    return states


BOTH = pytest.mark.parametrize("as_stored", [lambda values: values, bfloat16], ids=["float32", "bfloat16"])


@BOTH
@pytest.mark.parametrize(
    ("place", "value", "fault", "words"),
    [
        (
            (7, 1, 3),
            np.nan,
            RowFault.NOT_A_NUMBER,
            "NaN in 1 of 160 vectors, the first at position 7, layer id 3",
        ),
        (
            (0, 0, 0),
            np.inf,
            RowFault.INFINITE,
            "infinite in 1 of 160 vectors, the first at position 0, layer id 2",
        ),
        ((39, 3, 31), -np.inf, RowFault.INFINITE, "the first at position 39, layer id 8"),
        ((20, 2), 0.0, RowFault.ALL_ZERO, "1 of 160 vectors are zero, the first at position 20, layer id 5"),
        ((slice(None), 3), -0.0, RowFault.ALL_ZERO, "40 of 160 vectors are zero, the first at position 0"),
        ((slice(None),), 0.0, RowFault.ALL_ZERO, "160 of 160 vectors are zero"),
    ],
)
def test_states_that_cannot_be_right_are_refused(
    as_stored: Callable[[NDArray[np.float32]], NDArray[Any]],
    place: tuple[Any, ...],
    value: float,
    fault: RowFault,
    words: str,
) -> None:
    with pytest.raises(RowRefusedError, match=words) as refused:
        _check(as_stored(_spoilt(place, value)))

    assert refused.value.fault is fault


@BOTH
def test_good_states_pass(as_stored: Callable[[NDArray[np.float32]], NDArray[Any]]) -> None:
    _check(as_stored(_float32()))
    _check(as_stored(_spoilt((3, 1, slice(5, None)), 0.0)))
    _check(as_stored(_spoilt((3, 1, 5), 3.3e38)))


def test_the_embedding_of_a_padding_token_may_be_zero_but_not_all_embeddings() -> None:
    _check(_spoilt((4, 0), 0.0), [0, 3, 5, 8])

    with pytest.raises(RowRefusedError, match="layer id 0"):
        _check(_spoilt((slice(None), 0), 0.0), [0, 3, 5, 8])


@pytest.mark.parametrize("change", [lambda values: values, np.abs, lambda values: -np.abs(values)])
def test_largest_magnitudes_are_those_of_a_plain_look(
    change: Callable[[NDArray[np.float32]], NDArray[np.float32]],
) -> None:
    values = change(_float32(3))
    assert np.array_equal(largest_magnitudes(values).view(np.float32), np.abs(values).max(axis=-1))

    found = largest_magnitudes(bfloat16(values)).astype(np.uint32) << 16

    expected = (bfloat16(np.abs(values).max(axis=-1)).astype(np.uint32)) << 16
    assert np.array_equal(found.view(np.float32), expected.view(np.float32))


def test_who_looks_along_sees_every_byte_once_and_in_order() -> None:
    states = bfloat16(np.random.default_rng(0).standard_normal((3000, 4, 128), dtype=np.float32))
    seen: list[bytes] = []

    largest_magnitudes(states, lambda part: seen.append(bytes(part)))

    assert len(seen) > 1
    assert b"".join(seen) == states.tobytes()


@pytest.mark.parametrize(
    ("change", "fault", "words"),
    [
        (lambda each: {"states": each.states[:-1]}, RowFault.WRONG_LENGTH, "10 tokens were asked for"),
        (lambda each: {"returned_ids": each.returned_ids[:-1]}, RowFault.WRONG_LENGTH, "there are 9 ids"),
        (
            lambda each: {"states": each.states[:, :3]},
            RowFault.WRONG_SHAPE,
            r"\[10, 3, 32\] are not those of 4",
        ),
        (lambda each: {"states": each.states[:, :, :16]}, RowFault.WRONG_SHAPE, "width 32"),
        (
            lambda each: {
                "returned_ids": np.where(np.arange(10) == 6, 7777, each.token_ids).astype(np.int32)
            },
            RowFault.OTHER_TOKENS,
            "1 ids differ, the first at position 6: .* was asked for, 7777 came back",
        ),
    ],
)
def test_states_of_something_else_are_refused_and_the_store_goes_on(
    tmp_path: Path, change: Callable[[StoreRow], dict[str, Any]], fault: RowFault, words: str
) -> None:
    good = row(1, 10)
    with writer(tmp_path) as store:
        with pytest.raises(RowRefusedError, match=words) as refused:
            store.append(replace(good, **change(good)), lambda: None)
        assert not store.holds(good.facts.key, good.token_ids)
        store.append(good, lambda: None)

    assert refused.value.fault is fault


def test_a_value_that_bfloat16_cannot_hold_is_refused(tmp_path: Path) -> None:
    good = row(1, TOKENS)
    with (
        writer(tmp_path, binding=binding(StateDtype.BFLOAT16)) as store,
        pytest.raises(RowRefusedError, match="infinite in 1 of 160"),
    ):
        store.append(replace(good, states=_spoilt((1, 1, 1), 3.4e38)), lambda: None)


def test_the_same_row_is_not_written_twice(tmp_path: Path) -> None:
    with writer(tmp_path) as store:
        store.append(row(1), lambda: None)
        with pytest.raises(ValueError, match="is in the store already"):
            store.append(row(1), lambda: None)
