"""The order in which a seed has a source read.

Rows are ordered by a hash of seed and position. So the order depends on no library's random numbers, and rows
that are added to the end of a source come in between the others without moving these against each other.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)


def shuffled(positions: NDArray[np.uint64], seed: int) -> NDArray[np.uint64]:
    """The positions, ordered by SplitMix64 of (seed, position).

    SplitMix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
    """
    start = _mixed(np.array([seed + 1], np.uint64) * _GOLDEN)
    keys = _mixed(start + (positions + np.uint64(1)) * _GOLDEN)
    return positions[np.argsort(keys, kind="stable")]


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
