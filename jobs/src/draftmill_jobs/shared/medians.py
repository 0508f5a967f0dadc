"""Noticing that answers have become short all at once, the first sign of a server that went wrong. Pure."""

from __future__ import annotations

import statistics
from typing import Final, NamedTuple

WINDOW: Final = 200  # answers
_FALL: Final = 0.5  # of the median, from one window to the next


class Fall(NamedTuple):
    """A median that fell by half or more.

    Attributes:
        after: Answers before the window.
        before: Median tokens of the window before.
        then: Median tokens of the window.
    """

    after: int
    before: int
    then: int


class MedianWatch:
    """Compares the median length of each window of answers with that of the window before.

    The first windows of a run, in which short answers are too many, can only be followed by longer ones.
    """

    def __init__(self) -> None:
        self._window: list[int] = []
        self._median: float | None = None
        self._seen = 0

    def add(self, tokens: int) -> Fall | None:
        """Takes in an answer's length; a fall when a window is full and has one."""
        self._window.append(tokens)
        if len(self._window) < WINDOW:
            return None
        before, self._median = self._median, statistics.median(self._window)
        after, self._seen = self._seen, self._seen + len(self._window)
        self._window.clear()
        if before is None or self._median > _FALL * before:
            return None
        return Fall(after, round(before), round(self._median))
