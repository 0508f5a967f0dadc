"""A row on its way into a store: checked, brought to the store's dtype, hashed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

import numpy as np
import xxhash
from numpy.typing import NDArray

from draftmill_api.store import ComputedIn, Float8Error, RowFacts, StoreBinding
from draftmill_api.v1alpha1.extractrun import StateDtype
from draftmill_jobs.store import float8
from draftmill_jobs.store.checks import StateArray, check_finite, check_row
from draftmill_jobs.store.layout import ITEM_BYTES
from draftmill_jobs.store.values import to_bfloat16, to_float32


@dataclass(frozen=True, slots=True)
class StoreRow:
    """A row and its states, as they came from the server.

    The arrays may be views of a file that is mapped; they are not copied, and must stay as they are until the
    row has been appended.

    Attributes:
        facts: What the record says.
        token_ids: `int32[T]`, those that were asked for.
        loss_mask: `uint8[T]`, not 0 where the token is the target's own answer.
        states: `[T, states, hidden]`, ascending layer ids, the last before the final norm; float32, or
            bfloat16 as uint16.
        returned_ids: `int32[T]`, those that the server computed the states for.
        computed_in: What the states were before they became these.
    """

    facts: RowFacts
    token_ids: NDArray[np.int32]
    loss_mask: NDArray[np.uint8]
    states: StateArray
    returned_ids: NDArray[np.int32]
    computed_in: ComputedIn


@dataclass(frozen=True, slots=True)
class EncodedRow:
    """A row as a shard keeps it.

    Attributes:
        block: What stands together in the shard: states, with Float8 the scale, token ids.
        loss_mask: `uint8[T]`, which stands at the shard's end.
        hash: Of block and mask.
    """

    facts: RowFacts
    tokens: int
    block: tuple[memoryview, ...]
    loss_mask: NDArray[np.uint8]
    hash: str
    float8_error: Float8Error | None
    computed_in: ComputedIn


def encode_row(row: StoreRow, binding: StoreBinding) -> EncodedRow:
    """Checks a row and encodes it; when its dtype is the store's, without a copy and in one pass.

    Raises:
        RowRefusedError: Its states cannot be right.
        ValueError: The loss mask is of another length than the tokens.
    """
    if len(row.loss_mask) != len(row.token_ids):
        raise ValueError(f"a loss mask of {len(row.loss_mask)} for {len(row.token_ids)} tokens")
    digest = xxhash.xxh3_128()
    is_as_stored = row.states.itemsize == ITEM_BYTES[binding.dtype]
    check_row(
        row.states,
        token_ids=row.token_ids,
        returned_ids=row.returned_ids,
        layer_ids=binding.layer_ids,
        hidden_size=binding.hidden_size,
        seen=digest.update if is_as_stored else None,
    )
    states, error = _encode_states(row.states, binding)
    block = tuple(_bytes(part) for part in (*states, row.token_ids))
    mask = (row.loss_mask != 0).astype(np.uint8)
    for part in (*(block[1:] if is_as_stored else block), _bytes(mask)):
        digest.update(part)
    return EncodedRow(
        facts=row.facts,
        tokens=len(row.token_ids),
        block=block,
        loss_mask=mask,
        hash=digest.hexdigest(),
        float8_error=error,
        computed_in=row.computed_in,
    )


def hash_of(*parts: bytes | memoryview) -> str:
    """The hash of a row whose bytes are these, one part after another."""
    digest = xxhash.xxh3_128()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def _encode_states(
    states: StateArray, binding: StoreBinding
) -> tuple[list[NDArray[np.generic]], Float8Error | None]:
    match binding.dtype:
        case StateDtype.BFLOAT16:
            rounded = to_bfloat16(states)
            if states.itemsize == 4:
                check_finite(rounded, binding.layer_ids)
            return [rounded], None
        case StateDtype.FLOAT32:
            return [to_float32(states)], None
        case StateDtype.FLOAT8:
            encoded = float8.encode(states)
            return [encoded.codes, encoded.scale], encoded.error
        case _:
            assert_never(binding.dtype)


def _bytes(array: NDArray[np.generic]) -> memoryview:
    return np.ascontiguousarray(array).data.cast("B")
