"""A histogram of lengths in tokens: four bins an octave, whatever the longest is."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

_FIRST = 8.0  # tokens; shorter ones share a bin
_AN_OCTAVE = 4
_OCTAVES = 21  # up to 16,777,216 tokens

EDGES: Final = (0.0, *(_FIRST * 2.0 ** (i / _AN_OCTAVE) for i in range(_AN_OCTAVE * _OCTAVES + 1)))
"""Where each bin begins; the last one has no end."""


class Lengths:
    """How many things were how long. A few kilobytes, however many they are.

    Attributes:
        counts: Of each bin, how many fell into it.
        tokens: Of each bin, the sum of their lengths.
    """

    def __init__(self) -> None:
        self.counts = [0] * len(EDGES)
        self.tokens = [0] * len(EDGES)

    def add(self, tokens: int) -> None:
        """Takes in one length."""
        place = bisect_right(EDGES, tokens) - 1
        self.counts[place] += 1
        self.tokens[place] += tokens
