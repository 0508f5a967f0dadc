"""Where everything is in a packed batch: documents, queries, and which output has which teacher.

A teacher position is a j at which the target says what token j + 1 is, while j and j + 1 both belong to an
answer. Step k answers it from t = j - 1 - k, if the document reaches back so far. So one list of teacher
positions serves all steps, and the teacher is computed once. Nothing ever looks over the edge of a document.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from draftmill_jobs.train.picking import Rows


@dataclass(frozen=True, slots=True)
class PackedStates:
    """Rows behind one another, as tensors on the training device.

    Attributes:
        token_ids: int64[T].
        states: `[T, states, target H]`, those that enter the drafter.
        last: `[T, target H]`, the target's last state, before its final norm.
    """

    token_ids: Tensor
    states: Tensor
    last: Tensor

    def to(self, device: torch.device) -> PackedStates:
        """The same on another device."""
        return PackedStates(
            *(x.to(device, non_blocking=True) for x in (self.token_ids, self.states, self.last))
        )


@dataclass(frozen=True, slots=True)
class Window:
    """A document's part of the queries.

    Attributes:
        first_key: Packed position of the document's first token.
        first_query: Packed position of its first query.
        first_row: Where its queries begin among all.
        queries: How many there are, at positions one after another.
    """

    first_key: int
    first_query: int
    first_row: int
    queries: int

    @property
    def keys(self) -> slice:
        """Packed positions that its queries may look at."""
        return slice(self.first_key, self.first_query + self.queries)


@dataclass(frozen=True, slots=True)
class Scored:
    """What one step is scored on.

    Attributes:
        rows: S query rows.
        teachers: int64[S], numbers of their teacher positions; None when these are all, in order.
    """

    rows: Rows
    teachers: Tensor | None

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class Layout:
    """Positions are packed positions, places count from the start of a document.

    Attributes:
        windows: Documents with queries.
        key_places: T of them.
        query_positions: N of them.
        query_places: N of them.
        teacher_positions: J of them, ascending.
        scored: For each step.
        places: One more than the highest place of any step.
    """

    windows: tuple[Window, ...]
    key_places: Rows
    query_positions: Rows
    query_places: Rows
    teacher_positions: Rows
    scored: tuple[Scored, ...]
    places: int

    @property
    def steps(self) -> int:
        """K, how often the drafter is unrolled."""
        return len(self.scored)

    def to(self, device: torch.device) -> Layout:
        """The same on another device."""
        scored = tuple(
            Scored(s.rows.to(device), None if s.teachers is None else s.teachers.to(device))
            for s in self.scored
        )
        return Layout(
            windows=self.windows,
            key_places=self.key_places.to(device),
            query_positions=self.query_positions.to(device),
            query_places=self.query_places.to(device),
            teacher_positions=self.teacher_positions.to(device),
            scored=scored,
            places=self.places,
        )


def lay_out(lengths: Sequence[int], mask: NDArray[np.bool_], steps: int) -> Layout:
    """Lays out packed documents.

    Args:
        lengths: Tokens of each document.
        mask: bool[T], tokens of answers, up to and with the one that ends them.
        steps: K.
    """
    edges = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    windows: list[Window] = []
    teachers, starts = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    rows = 0
    for begin, end in pairwise(edges.tolist()):
        inside = mask[begin:end]
        found = begin + np.flatnonzero(inside[:-1] & inside[1:])
        found = found[found > begin]
        if not found.size:
            continue
        first, last = max(begin, int(found[0]) - steps), int(found[-1]) - 1
        windows.append(Window(begin, first, rows, last - first + 1))
        rows += last - first + 1
        teachers.append(found)
        starts.append(np.full(len(found), len(windows) - 1))
    position, window = np.concatenate(teachers), np.concatenate(starts)
    queries = np.concatenate(
        [np.empty(0, np.int64), *(np.arange(w.first_query, w.first_query + w.queries) for w in windows)]
    )
    places = np.arange(edges[-1]) - np.repeat(edges[:-1], np.diff(edges))
    return Layout(
        windows=tuple(windows),
        key_places=Rows.of(places),
        query_positions=Rows.of(queries),
        query_places=Rows.of(places[queries]),
        teacher_positions=Rows.of(position),
        scored=tuple(_scored(position, window, windows, step) for step in range(steps)),
        places=max(lengths, default=0) + steps,
    )


def _scored(
    position: NDArray[np.int64], window: NDArray[np.int64], windows: Sequence[Window], step: int
) -> Scored:
    table = np.array([(w.first_query, w.first_row) for w in windows], np.int64).reshape(-1, 2)
    first_query, first_row = table[window].T
    row = position - 1 - step - first_query
    reached = row >= 0
    teachers = None if reached.all() else torch.from_numpy(np.flatnonzero(reached))
    return Scored(Rows.of((row + first_row)[reached]), teachers)
