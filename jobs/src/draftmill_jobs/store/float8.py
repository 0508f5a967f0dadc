"""Float8 e4m3 with one float32 scale for each (token, layer).

A scale is a power of two, the smallest that brings the vector's largest magnitude to at most 448. So scaling
itself is exact, and a value is encoded by one table from its upper 16 bits. A huge activation in one layer of
one token costs precision there and nowhere else.
"""

from __future__ import annotations

from functools import cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from draftmill_api.store import Float8Error
from draftmill_jobs.store.checks import StateArray
from draftmill_jobs.store.values import to_float32

LARGEST: Final = 448.0
_CHUNK_TOKENS: Final = 32


class Float8(NamedTuple):
    """Encoded states.

    Attributes:
        codes: `uint8[T, states, hidden]`, bit patterns of e4m3.
        scale: `float32[T, states]`; a value is its code's times the scale.
        error: Of decoding them again.
    """

    codes: NDArray[np.uint8]
    scale: NDArray[np.float32]
    error: Float8Error


def encode(states: StateArray) -> Float8:
    """Encodes finite states `[T, states, hidden]`."""
    codes = np.empty(states.shape, np.uint8)
    scale = np.empty(states.shape[:2], np.float32)
    errors = np.empty(states.shape[:2], np.float32)
    for start in range(0, len(states), _CHUNK_TOKENS):
        part = slice(start, start + _CHUNK_TOKENS)
        values = to_float32(states[part])
        scale[part] = _scales(np.abs(values).max(axis=-1))
        scaled = values / scale[part, :, None]
        codes[part] = _codes()[_upper_bits(scaled)]
        errors[part] = _relative_errors(scaled, codes[part])
    return Float8(
        codes, scale, Float8Error(mean=float(errors.mean(dtype=np.float64)), worst=float(errors.max()))
    )


def decode(codes: NDArray[np.uint8], scale: NDArray[np.float32]) -> NDArray[np.float32]:
    """The values `[T, states, hidden]` that the codes stand for."""
    return decoding_table()[codes] * scale[..., None]


@cache
def decoding_table() -> NDArray[np.float32]:
    """The value of each of the 256 codes."""
    code = np.arange(256)
    exponent, mantissa = (code >> 3) & 15, code & 7
    size = np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * np.exp2(exponent - 10.0))
    size[(code & 0x7F) == 0x7F] = np.nan
    return np.where(code & 0x80, -size, size).astype(np.float32)


@cache
def _codes() -> NDArray[np.uint8]:
    """For each upper half of a float32 the nearest code, ties to the even one; beyond 448 the code of 448."""
    upper = np.arange(1 << 16, dtype=np.uint32)
    values = (np.minimum(upper & 0x7FFF, 0x43E0) << 16).view(np.float32).astype(np.float64)  # 0x43E0: 448
    steps = decoding_table()[:0x7F].astype(np.float64)
    above = np.clip(np.searchsorted(steps, values), 1, len(steps) - 1)
    to_lower, to_upper = values - steps[above - 1], steps[above] - values
    is_upper = (to_upper < to_lower) | ((to_upper == to_lower) & (above % 2 == 0))
    code: NDArray[np.uint8] = np.where(is_upper, above, above - 1).astype(np.uint8)
    code |= ((upper >> 8) & 0x80).astype(np.uint8)
    return code


def _upper_bits(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The upper half of each float32, odd when the lower half has any bit: so a later rounding is exact."""
    bits = values.view(np.uint32)
    sticky = (bits & np.uint32(0xFFFF)) != 0
    upper: NDArray[np.uint16] = (bits >> np.uint32(16)).astype(np.uint16) | sticky
    return upper


def _scales(largest: NDArray[np.float32]) -> NDArray[np.float32]:
    mantissa, exponent = np.frexp(largest / np.float32(LARGEST))
    scale: NDArray[np.float32] = np.ldexp(np.float32(1), np.where(mantissa == 0.5, exponent - 1, exponent))
    return np.where(largest == 0, np.float32(1), scale)


def _relative_errors(scaled: NDArray[np.float32], codes: NDArray[np.uint8]) -> NDArray[np.float32]:
    lost = scaled - decoding_table()[codes]
    norm = np.einsum("tsh,tsh->ts", scaled, scaled)
    error: NDArray[np.float32] = np.sqrt(
        np.einsum("tsh,tsh->ts", lost, lost) / np.maximum(norm, np.float32(1e-30))
    )
    return error
