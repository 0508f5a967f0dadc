"""Which rows a dataset asks for, and which of them are settled."""

from __future__ import annotations

from enum import Enum
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from draftmill_api.record import row_id, split_row_id
from draftmill_jobs.prompts.rows import owner_number
from draftmill_jobs.shared.settings import Share

KEY_BYTES: Final = 16


class Settling(Enum):
    """What is known of a row that has a record or a dead letter."""

    FIRST = "first"
    AGAIN = "again"
    """It was settled before."""
    STRANGER = "stranger"
    """Nobody asks for it: its prompt is not in the source, or so many samples are not wanted."""


class RowTable:
    """The prompts of a source, by key, and a byte for each of their samples.

    Keys stand in one sorted array: a million prompts take 21 MB, where a dict of them takes 110.
    """

    def __init__(self, keys: bytes, samples: int, roots: NDArray[np.intp] | None = None) -> None:
        """Takes the keys of the rows, in their order, duplicates included.

        Args:
            keys: `KEY_BYTES` of each row.
            samples: Answers asked for each prompt.
            roots: Of each row the one that its conversation begins with, whose worker it belongs to; None
                when each is the only one of its conversation.
        """
        given = np.frombuffer(keys, dtype=f"S{KEY_BYTES}")
        self._roots = np.arange(len(given)) if roots is None else roots
        self._order = np.argsort(given, kind="stable").astype(np.int32)
        self._keys = given[self._order].tobytes()
        self._sorted = np.frombuffer(self._keys, dtype=given.dtype)
        self._samples = samples
        self._settled = bytearray(len(given) * samples)
        self._met = bytearray(len(given))

    @property
    def rows(self) -> int:
        """Rows of the source, duplicates included."""
        return len(self._order)

    @property
    def samples(self) -> int:
        """Answers asked for each prompt."""
        return self._samples

    def settle(self, identity: str) -> Settling:
        """Notes that a row has a record or a dead letter."""
        place = self._place(identity)
        if place is None:
            return Settling.STRANGER
        if self._settled[place]:
            return Settling.AGAIN
        self._settled[place] = 1
        return Settling.FIRST

    def asks_for(self, identity: str) -> bool:
        """Whether the source holds the row's prompt, and so many samples of it are asked for."""
        return self._place(identity) is not None

    def has_prompt(self, key: bytes) -> bool:
        """Whether the source holds the prompt."""
        return self._slot(key) is not None

    def meet(self, key: str) -> bool:
        """Notes that a row comes to be asked. False if one of the same prompt came before.

        Raises:
            KeyError: The source does not hold the prompt.
        """
        slot = self._known_slot(key)
        is_first = not self._met[slot]
        self._met[slot] = 1
        return is_first

    def open_samples(self, key: str, share: Share) -> list[int]:
        """The samples of a prompt that are this worker's and not settled.

        Raises:
            KeyError: The source does not hold the prompt.
        """
        slot = self._known_slot(key)
        return self._open(slot) if self._is_owned(slot, share) else []

    def owns(self, identity: str, share: Share) -> bool:
        """Whether a row that is asked for falls to this worker."""
        return share.count == 1 or self._is_owned(self._known_slot(split_row_id(identity)[0]), share)

    def open_rows(self, share: Share) -> NDArray[np.bool_]:
        """For each row whether it is the first of its prompt, with samples left for this worker."""
        settled = np.frombuffer(self._settled, dtype=np.uint8).reshape(self.rows, self._samples)
        return self._by_row(~settled.all(axis=1) & self._is_first() & self._owned(share))

    def first_rows(self) -> NDArray[np.bool_]:
        """For each row whether it is the first of its prompt."""
        return self._by_row(self._is_first())

    def settled(self, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        """For each of these rows whether its samples are settled: `[rows, samples]`."""
        settled = np.frombuffer(self._settled, dtype=np.bool_).reshape(self.rows, self._samples)
        slots = np.empty(self.rows, dtype=np.intp)
        slots[self._order] = np.maximum.accumulate(np.where(self._is_first(), np.arange(self.rows), 0))
        found: NDArray[np.bool_] = settled[slots[rows]]
        return found

    def total(self, share: Share) -> int:
        """Rows that are this worker's, each sample counted."""
        return int(self._owned(share).sum()) * self._samples

    def repeated(self, share: Share) -> int:
        """Of them, those whose prompt stands earlier in the source."""
        return int((self._owned(share) & ~self._is_first()).sum()) * self._samples

    def unsettled(self) -> tuple[int, str]:
        """How many rows have neither record nor dead letter, and one of them."""
        settled = np.frombuffer(self._settled, dtype=np.uint8).reshape(self.rows, self._samples)
        slots, samples = np.nonzero((settled == 0) & self._is_first()[:, np.newaxis])
        example = row_id(self._key(slots[0]), int(samples[0])) if len(slots) else ""
        return len(slots), example

    def _owned(self, share: Share) -> NDArray[np.bool_]:
        """For each slot whether it is this worker's."""
        if share.count == 1:
            return np.ones(self.rows, dtype=bool)
        owned: NDArray[np.bool_] = self._owners % share.count == share.index
        return owned

    def _is_owned(self, slot: int, share: Share) -> bool:
        return share.count == 1 or int(self._owners[slot]) % share.count == share.index

    @cached_property
    def _owners(self) -> NDArray[np.uint32]:
        """For each slot a number that decides whose it is: a hash of what its conversation begins with."""
        numbers = np.empty(self.rows, dtype=np.uint32)
        for slot, row in enumerate(self._order):
            if self._roots[row] == row:
                numbers[row] = owner_number(self._key(slot))
        return numbers[self._roots][self._order]

    def _by_row(self, slots: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """The same in the order of the source."""
        rows = np.empty(self.rows, dtype=bool)
        rows[self._order] = slots
        return rows

    def _is_first(self) -> NDArray[np.bool_]:
        """For each slot whether it is the first of its key."""
        first = np.ones(self.rows, dtype=bool)
        first[1:] = self._sorted[1:] != self._sorted[:-1]
        return first

    def _place(self, identity: str) -> int | None:
        """Where the row's byte is."""
        key, sample = split_row_id(identity)
        slot = self._slot(bytes.fromhex(key)) if sample < self._samples else None
        return None if slot is None else slot * self._samples + sample

    def _known_slot(self, key: str) -> int:
        slot = self._slot(bytes.fromhex(key))
        if slot is None:
            raise KeyError(key)
        return slot

    def _slot(self, key: bytes) -> int | None:
        """Where the key first stands among the sorted ones."""
        slot = int(self._sorted.searchsorted(key))
        return slot if self._keys[slot * KEY_BYTES : (slot + 1) * KEY_BYTES] == key else None

    def _key(self, slot: int | np.intp) -> str:
        start = int(slot) * KEY_BYTES
        return self._keys[start : start + KEY_BYTES].hex()

    def _open(self, slot: int) -> list[int]:
        start = slot * self._samples
        return [sample for sample in range(self._samples) if not self._settled[start + sample]]
