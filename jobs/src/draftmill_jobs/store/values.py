"""From the dtype that a server computes in to the one that a store keeps, and back to float32."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from draftmill_jobs.store.checks import StateArray


def to_bfloat16(states: StateArray) -> NDArray[np.uint16]:
    """Bit patterns of bfloat16, rounded to nearest, ties to even; beyond its range they are infinite."""
    if states.itemsize == 2:
        return states.view(np.uint16)
    bits = states.view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    return ((bits + odd + np.uint32(0x7FFF)) >> np.uint32(16)).astype(np.uint16)


def to_float32(states: StateArray) -> NDArray[np.float32]:
    """Exact: every bfloat16 is a float32."""
    if states.itemsize == 4:
        return states.view(np.float32)
    return (states.astype(np.uint32) << np.uint32(16)).view(np.float32)
