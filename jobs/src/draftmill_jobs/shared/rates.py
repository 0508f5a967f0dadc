"""Rates over the last minutes."""

from __future__ import annotations

from collections import deque
from typing import Final

_WINDOW: Final = 300.0  # seconds; what takes long, as a long answer does, ends rarely


class Rates:
    """How fast counts grow, measured from the oldest sample of the last minutes to now."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, tuple[int, ...]]] = deque()

    def sample(self, now: float, *counts: int) -> None:
        """Takes note of the counts; `now` is in monotonic seconds."""
        self._samples.append((now, counts))
        while now - self._samples[0][0] > _WINDOW:
            self._samples.popleft()

    def clear(self) -> None:
        """Nothing grows for a while, which shall not count."""
        self._samples.clear()

    def of(self, now: float, *counts: int) -> tuple[float, ...]:
        """The growth of each count in a second; zeros while there is no sample older than `now`."""
        if not self._samples or now <= self._samples[0][0]:
            return (0.0,) * len(counts)
        began, first = self._samples[0]
        return tuple((count - before) / (now - began) for count, before in zip(counts, first, strict=True))
