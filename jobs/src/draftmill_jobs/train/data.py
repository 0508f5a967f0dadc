"""From rows of a store to packed batches, read ahead by a thread while the last one is computed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from draftmill_jobs.train.layout import Layout, PackedStates, lay_out
from draftmill_jobs.train.packing import hash_of

_AHEAD: Final = 2  # batches


@dataclass(frozen=True, slots=True)
class RowInfo:
    """What is known of a row without reading it.

    Attributes:
        key: Its name, unique in the store.
        split_key: Rows that have it in common are held out together.
        tokens: That are read of it.
        greedy: Whether its answer was sampled at temperature 0.
        hash: Of its bytes, whole.
    """

    key: str
    split_key: str
    tokens: int
    greedy: bool
    hash: str


@dataclass(frozen=True, slots=True)
class TrainRow:
    """A row, read.

    Attributes:
        token_ids: int32[T].
        mask: bool[T], tokens of answers.
        states: `[T, states + 1, target H]`, those that enter the drafter and the target's last.
    """

    token_ids: NDArray[np.int32]
    mask: NDArray[np.bool_]
    states: Tensor


class RowCorruptError(Exception):
    """A row is not what was written."""


class RowSource(Protocol):
    """Rows by number."""

    @property
    def rows(self) -> Sequence[RowInfo]:
        """What there is."""

    def answer(self, row: int) -> NDArray[np.int32]:
        """The tokens of a row's answer, without a look at its states or its hash."""

    def read(self, row: int) -> TrainRow:
        """Reads one.

        Raises:
            RowCorruptError: It is not what was written.
        """


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """A rank's part of a batch.

    Attributes:
        rows: Numbers of its rows, in the order in which they are packed.
        lengths: Tokens of each.
        mask: bool[T].
        corrupt: Rows that should be in it and cannot be used.
    """

    rows: tuple[int, ...]
    lengths: tuple[int, ...]
    mask: NDArray[np.bool_]
    packed: PackedStates
    layout: Layout
    corrupt: tuple[int, ...]

    @property
    def tokens(self) -> int:
        """T."""
        return len(self.mask)


@dataclass(frozen=True, slots=True)
class Reading:
    """How rows become batches.

    Attributes:
        steps: K, how often the drafter is unrolled.
        shape: States that enter the drafter, and their width: of a batch without rows.
        noise: States that enter the drafter are moved by up to so much, in each value, uniformly.
        seed: Of the noise, which is the same whenever a row is read in the same epoch.
    """

    source: RowSource
    steps: int
    shape: tuple[int, int]
    noise: float = 0.0
    seed: int = 0

    def batch(self, rows: Iterable[int], epoch: int) -> PackedBatch:
        """Reads and packs rows."""
        numbers, read, corrupt = list[int](), list[TrainRow](), list[int]()
        for row in rows:
            try:
                read.append(self.source.read(row))
                numbers.append(row)
            except RowCorruptError:
                corrupt.append(row)
        lengths = tuple(len(row.mask) for row in read)
        mask = np.concatenate([np.empty(0, np.bool_), *(row.mask for row in read)])
        ids = np.concatenate([np.empty(0, np.int64), *(row.token_ids for row in read)])
        states = (
            torch.cat([row.states for row in read])
            if read
            else torch.empty(0, self.shape[0] + 1, self.shape[1])
        )
        entering = states[:, :-1]
        if self.noise:
            noise = (self._noise(row, epoch, len(one.mask)) for row, one in zip(numbers, read, strict=True))
            entering = entering + torch.cat([torch.empty(0, *self.shape), *noise])
        packed = PackedStates(torch.from_numpy(ids), entering, states[:, -1])
        return PackedBatch(
            tuple(numbers), lengths, mask, packed, lay_out(lengths, mask, self.steps), tuple(corrupt)
        )

    def _noise(self, row: int, epoch: int, tokens: int) -> Tensor:
        made = torch.Generator().manual_seed(hash_of(f"{self.seed}/{epoch}/{row}") >> 1)
        return (2 * torch.rand(tokens, *self.shape, generator=made) - 1) * self.noise


class Prefetcher:
    """Reads batches ahead, in order, and knows how long the training waited for them.

    Args:
        reading: How rows become batches.
        batches: Rows and epoch of each.
    """

    def __init__(self, reading: Reading, batches: Iterable[tuple[Sequence[int], int]]) -> None:
        self._reading, self._batches = reading, iter(batches)
        self.waited = 0.0
        """Seconds."""

    def __iter__(self) -> Iterator[PackedBatch]:
        with ThreadPoolExecutor(1, "prefetch") as pool:
            ahead: list[Future[PackedBatch]] = []
            while True:
                for rows, epoch in islice(self._batches, _AHEAD - len(ahead)):
                    ahead.append(pool.submit(self._reading.batch, rows, epoch))
                if not ahead:
                    return
                began = time.monotonic()
                batch = ahead.pop(0).result()
                self.waited += time.monotonic() - began
                yield batch
