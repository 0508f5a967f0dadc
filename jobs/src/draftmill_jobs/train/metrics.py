"""How far a drafter's words would be accepted, counted as a server counts.

A cycle starts at t, when the server knows the tokens up to t + 1 and the states up to t. Step k drafts token
t + 2 + k, and is accepted when it and all steps before it are right. The server then knows one token more
than it accepted, so the next cycle starts at t + 1 + accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Counts over cycles; they add up.

    Attributes:
        cycles: Draft cycles.
        accepted: For each step k, cycles in which it was accepted.
        hits: For each step k, positions at which the step alone was right, of `asked`, wherever cycles start.
    """

    cycles: int
    accepted: tuple[int, ...]
    hits: tuple[int, ...]
    asked: tuple[int, ...]

    @classmethod
    def none(cls, steps: int) -> Self:
        """Nothing counted."""
        return cls(0, (0,) * steps, (0,) * steps, (0,) * steps)

    def __add__(self, other: Acceptance) -> Acceptance:
        pairs = ((self.accepted, other.accepted), (self.hits, other.hits), (self.asked, other.asked))
        sums = (tuple(a + b for a, b in zip(*pair, strict=True)) for pair in pairs)
        return Acceptance(self.cycles + other.cycles, *sums)

    @property
    def length(self) -> float:
        """1 + accepted draft tokens / cycles, with the bonus token; 1 when there was no cycle."""
        return 1 + sum(self.accepted) / self.cycles if self.cycles else 1.0

    @property
    def by_position(self) -> tuple[float, ...]:
        """For each step, the share of cycles in which it was accepted."""
        return tuple(count / self.cycles if self.cycles else 0.0 for count in self.accepted)

    @property
    def accuracy(self) -> tuple[float, ...]:
        """For each step, the share of positions at which it alone was right."""
        return tuple(hit / n if n else 0.0 for hit, n in zip(self.hits, self.asked, strict=True))


def count_acceptance(
    drafted: NDArray[np.int64], first: int, mask: NDArray[np.bool_], wanted: NDArray[np.int64]
) -> Acceptance:
    """Walks the cycles of one document, and counts what each step alone has right.

    A step is asked at t when tokens t + 1 to t + 2 + k belong to one answer.

    Args:
        drafted: int64[K, Q], the target ids drafted at queries `first`, `first + 1`, ...; -1 for none.
        first: Place of the first query.
        mask: bool[T], tokens of answers.
        wanted: int64[T], what each token should be.
    """
    steps, queries = drafted.shape
    length = len(mask)
    places = first + np.arange(queries)
    asked, right = np.zeros((steps, queries), np.bool_), np.zeros((steps, queries), np.bool_)
    for step in range(steps):
        inside = np.flatnonzero(places + 2 + step < length)
        token = places[inside] + 2 + step
        asked[step, inside] = mask[places[inside] + 1] & mask[token]
        right[step, inside] = asked[step, inside] & (drafted[step, inside] == wanted[token])
    # Within one answer: what a step says beyond its end is no draft of this cycle.
    asked = np.logical_and.accumulate(asked, axis=0)
    right &= asked
    run = np.logical_and.accumulate(right, axis=0).sum(0)  # steps accepted, if a cycle started here
    cycles, accepted = 0, np.zeros(steps, np.int64)
    for start, stop in _answers(mask):
        place = start - 1
        while place + 2 < stop:
            if (query := place - first) >= 0:
                taken = int(run[query])
                cycles += 1
                accepted[:taken] += 1
                place += taken
            place += 1
    return Acceptance(cycles, _ints(accepted), _ints(right.sum(1)), _ints(asked.sum(1)))


def _answers(mask: NDArray[np.bool_]) -> Sequence[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    return [(int(start), int(stop)) for start, stop in edges.reshape(-1, 2)]


def _ints(counts: NDArray[np.int64]) -> tuple[int, ...]:
    return tuple(int(count) for count in counts)
