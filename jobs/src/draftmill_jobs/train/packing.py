"""Which rows make up which batch: the same for every process and resume, from seed, epoch and rows alone.

Rows are put in an order by hash and packed in that order into batches of a bounded number of tokens. A batch
is what one optimiser step sees over all ranks; so the number of ranks changes neither batches nor their
order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Final, TypeAlias

Batch: TypeAlias = tuple[int, ...]
"""Numbers of the rows of one optimiser step."""

_OPEN: Final = 64  # batches that wait for a row that fits


def is_held_out(split_key: str, percent: float) -> bool:
    """Whether rows are kept from training: all that have this key in common, or none."""
    return hash_of(split_key) < percent / 100 * 2**64


def pack(keys: Sequence[str], lengths: Sequence[int], *, tokens: int, seed: int, epoch: int) -> list[Batch]:
    """Packs all rows into batches.

    Each row goes to the fullest open batch that has room for it. A row longer than a batch has one to itself.

    Args:
        keys: Names of the rows, which decide on their order.
        lengths: Tokens of each.
        tokens: Most that a batch holds.
        seed: Of the training.
        epoch: Each has its own order.
    """
    order = sorted(range(len(keys)), key=lambda row: (hash_of(f"{seed}/{epoch}/{keys[row]}"), keys[row]))
    full: list[Batch] = []
    waiting: list[tuple[int, list[int]]] = []  # tokens, rows
    for row in order:
        length = lengths[row]
        fitting = [i for i, (held, _) in enumerate(waiting) if held + length <= tokens]
        chosen = max(fitting, key=lambda i: waiting[i][0], default=None)
        held, rows = waiting.pop(chosen) if chosen is not None else (0, [])
        waiting.append((held + length, [*rows, row]))
        if len(waiting) > _OPEN:
            fullest = max(range(len(waiting)), key=lambda i: waiting[i][0])
            full.append(tuple(waiting.pop(fullest)[1]))
    return [*full, *(tuple(rows) for _, rows in waiting)]


def share_of(batch: Batch, lengths: Sequence[int], *, rank: int, ranks: int) -> Batch:
    """A rank's rows of a batch: the longest first, each to the rank with the fewest tokens so far."""
    held, shares = [0] * ranks, [list[int]() for _ in range(ranks)]
    for row in sorted(batch, key=lambda row: (-lengths[row], row)):
        least = min(range(ranks), key=lambda i: held[i])
        held[least] += lengths[row]
        shares[least].append(row)
    return tuple(shares[rank])


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """Where a training is: the batch that comes next."""

    epoch: int = 0
    batch: int = 0


@dataclass(frozen=True)
class Schedule:
    """All batches of a training, in order.

    Attributes:
        epochs: The batches of each.
    """

    epochs: tuple[tuple[Batch, ...], ...]

    @classmethod
    def of(
        cls, keys: Sequence[str], lengths: Sequence[int], *, tokens: int, seed: int, epochs: int
    ) -> Schedule:
        """Packs every epoch."""
        packed = (pack(keys, lengths, tokens=tokens, seed=seed, epoch=epoch) for epoch in range(epochs))
        return cls(tuple(tuple(batches) for batches in packed))

    def renumbered(self, numbers: Sequence[int]) -> Schedule:
        """The same with row i called `numbers[i]`."""
        return Schedule(
            tuple(tuple(tuple(numbers[row] for row in batch) for batch in batches) for batches in self.epochs)
        )

    @cached_property
    def positions(self) -> tuple[Position, ...]:
        """Of each optimiser step, in order; position s is that of the step after s others."""
        return tuple(Position(e, b) for e, batches in enumerate(self.epochs) for b in range(len(batches)))

    def batch(self, position: Position) -> Batch:
        """The rows there."""
        return self.epochs[position.epoch][position.batch]


def hash_of(text: str) -> int:
    """A number below 2**64, the same everywhere and always."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())
