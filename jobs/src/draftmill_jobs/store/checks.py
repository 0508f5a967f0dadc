"""What a row's states must be before they enter a store. Pure.

A state that is exactly zero is never a residual stream: it is memory that a server gave out without writing
to it. So one zero vector, for one (token, layer), refuses the row. Only layer id 0 is different: there stand
the embeddings, and that of a padding token may be zero; all of them may not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

StateArray: TypeAlias = NDArray[np.uint16] | NDArray[np.float32]
"""States `[T, states, hidden]`: float32, or the bit patterns of bfloat16 as uint16."""

_CHUNK_BYTES: Final = 512 << 10  # stays in a core's cache while it is looked at more than once


class RowFault(StrEnum):
    """Why a row's states are refused."""

    WRONG_LENGTH = "wrong_length"
    WRONG_SHAPE = "wrong_shape"
    """Another number of states, or of another width, than the store holds."""
    OTHER_TOKENS = "other_tokens"
    NOT_A_NUMBER = "not_a_number"
    INFINITE = "infinite"
    ALL_ZERO = "all_zero"


class RowRefusedError(Exception):
    """A row's states cannot be right.

    Attributes:
        fault: In which way, for counting.
        message: The same with places and figures, without the row's name.
    """

    def __init__(self, fault: RowFault, message: str) -> None:
        super().__init__(message)
        self.fault = fault
        self.message = message


def check_row(
    states: StateArray,
    *,
    token_ids: NDArray[np.int32],
    returned_ids: NDArray[np.int32],
    layer_ids: Sequence[int],
    hidden_size: int,
    seen: Callable[[memoryview], object] | None = None,
) -> None:
    """Refuses states that are short, for other tokens, not finite, or zero.

    Args:
        states: `[T, states, hidden]`.
        token_ids: `[T]`, those that were asked for.
        returned_ids: `[T]`, those that the states are for, as the server says.
        layer_ids: Of the states, in "entering layer".
        seen: Given the bytes of the states, part by part, while they are in a core's cache.

    Raises:
        RowRefusedError: They are not the states of these tokens.
    """
    if not len(token_ids) == len(returned_ids) == len(states) > 0:
        raise RowRefusedError(
            RowFault.WRONG_LENGTH,
            f"{len(token_ids)} tokens were asked for; there are {len(returned_ids)} ids and states of "
            f"{len(states)}",
        )
    if states.shape[1:] != (len(layer_ids), hidden_size):
        raise RowRefusedError(
            RowFault.WRONG_SHAPE,
            f"states {list(states.shape)} are not those of {len(layer_ids)} layers and width {hidden_size}",
        )
    differ = np.flatnonzero(token_ids != returned_ids)
    if differ.size:
        at = int(differ[0])
        raise RowRefusedError(
            RowFault.OTHER_TOKENS,
            f"{differ.size} ids differ, the first at position {at}: {token_ids[at]} was asked for, "
            f"{returned_ids[at]} came back",
        )
    largest = largest_magnitudes(states, seen)
    _check_finite(largest, layer_ids)
    _check_nonzero(largest, layer_ids)


def check_finite(states: StateArray, layer_ids: Sequence[int]) -> None:
    """Refuses states that are not finite, as they may become when they are rounded.

    Raises:
        RowRefusedError: They are not.
    """
    _check_finite(largest_magnitudes(states), layer_ids)


def largest_magnitudes(
    states: StateArray, seen: Callable[[memoryview], object] | None = None
) -> NDArray[np.unsignedinteger]:
    """The bit pattern, without its sign, of the largest magnitude in each vector: `[T, states]`.

    Patterns of floats without a sign are in the order of their values, with infinity above all numbers and
    NaN above infinity. Read as unsigned, those with a sign are above those without one; read as signed, they
    are below: so two maxima tell the largest of each, and nothing is copied.

    Args:
        states: `[T, states, hidden]`.
        seen: Given the bytes of the states, part by part.
    """
    bits: NDArray[np.unsignedinteger] = states.view(np.uint16 if states.itemsize == 2 else np.uint32)
    signed: NDArray[np.signedinteger] = states.view(np.int16 if states.itemsize == 2 else np.int32)
    no_sign = bits.dtype.type((1 << (8 * bits.itemsize - 1)) - 1)
    largest = np.empty(bits.shape[:2], bits.dtype)
    step = max(1, _CHUNK_BYTES // max(1, bits[0].nbytes))
    for start in range(0, len(bits), step):
        part = slice(start, start + step)
        with_sign = np.bitwise_and(bits[part].max(axis=-1), no_sign)
        without = np.maximum(signed[part].max(axis=-1), 0).view(bits.dtype)
        np.maximum(with_sign, without, out=largest[part])
        if seen is not None:
            seen(np.ascontiguousarray(bits[part]).data.cast("B"))
    return largest


def _check_finite(largest: NDArray[np.unsignedinteger], layer_ids: Sequence[int]) -> None:
    infinity = _infinity(largest.dtype)
    bad = np.argwhere(largest >= infinity)
    if not bad.size:
        return
    is_nan = bool((largest > infinity).any())
    if is_nan:
        bad = np.argwhere(largest > infinity)
    token, layer = (int(part) for part in bad[0])
    raise RowRefusedError(
        RowFault.NOT_A_NUMBER if is_nan else RowFault.INFINITE,
        f"{'NaN' if is_nan else 'infinite'} in {len(bad)} of {largest.size} vectors, "
        f"the first at position {token}, layer id {layer_ids[layer]}",
    )


def _check_nonzero(largest: NDArray[np.unsignedinteger], layer_ids: Sequence[int]) -> None:
    zero = largest == 0
    if layer_ids[0] == 0 and not zero[:, 0].all():
        zero[:, 0] = False
    bad = np.argwhere(zero)
    if bad.size:
        token, layer = (int(part) for part in bad[0])
        raise RowRefusedError(
            RowFault.ALL_ZERO,
            f"{len(bad)} of {largest.size} vectors are zero, the first at position {token}, layer id "
            f"{layer_ids[layer]}",
        )


def _infinity(dtype: np.dtype[np.unsignedinteger]) -> int:
    return 0x7F80 << (8 * (dtype.itemsize - 2))
