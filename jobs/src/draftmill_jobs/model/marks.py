"""Where the few tokens stand in an answer that mean more than text. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Set as AbstractSet
from typing import Final

import numpy as np

_FEW: Final = 128  # ids that are looked at one by one faster than an array of them is made


class MarkFinder:
    """Finds tokens of a set: in an answer of 8,192 tokens some ten times faster than looking at each."""

    def __init__(self, marks: AbstractSet[int]) -> None:
        self._marks = marks
        self._is_mark = np.zeros(max(marks, default=0) + 2, np.bool_)  # the last is for all above
        self._is_mark[list(marks)] = True

    def places(self, ids: list[int]) -> list[int]:
        """Indices of the marks among token ids, which are below 2^32, in their order."""
        if len(ids) <= _FEW:
            return [place for place, token in enumerate(ids) if token in self._marks]
        numbers = np.frombuffer(array("I", ids), np.uint32)
        found = self._is_mark[np.minimum(numbers, len(self._is_mark) - 1)]
        places: list[int] = np.flatnonzero(found).tolist()
        return places
