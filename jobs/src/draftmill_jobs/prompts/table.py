"""Which rows a dataset asks for, and which of them are settled."""

from __future__ import annotations

from enum import Enum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from draftmill_api.record import row_id, split_row_id
from draftmill_jobs.prompts.rows import owns
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

    def __init__(self, keys: bytes, samples: int) -> None:
        """Takes the keys of the rows, in their order, duplicates included.

        Args:
            keys: `KEY_BYTES` of each row.
            samples: Answers asked for each prompt.
        """
        given = np.frombuffer(keys, dtype=f"S{KEY_BYTES}")
        self._order = np.argsort(given, kind="stable").astype(np.int32)
        self._keys = given[self._order].tobytes()
        self._sorted = np.frombuffer(self._keys, dtype=given.dtype)
        self._samples = samples
        self._settled = bytearray(len(given) * samples)

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

    def open_samples(self, key: str, share: Share) -> list[int]:
        """The samples of a prompt that are this worker's and not settled.

        Raises:
            KeyError: The source does not hold the prompt.
        """
        slot = self._slot(bytes.fromhex(key))
        if slot is None:
            raise KeyError(key)
        return [sample for sample in self._open(slot) if owns(share, row_id(key, sample))]

    def open_rows(self, share: Share) -> NDArray[np.bool_]:
        """For each row whether it is the first of its prompt, with samples left for this worker."""
        settled = np.frombuffer(self._settled, dtype=np.uint8).reshape(self.rows, self._samples)
        slots = np.flatnonzero(~settled.all(axis=1) & self._is_first())
        if share.count > 1:
            mine = (bool(self.open_samples(self._key(slot), share)) for slot in slots)
            slots = slots[np.fromiter(mine, dtype=bool, count=len(slots))]
        rows = np.zeros(self.rows, dtype=bool)
        rows[self._order[slots]] = True
        return rows

    def total(self, share: Share) -> int:
        """Rows that are this worker's, each sample counted."""
        return self._owned(np.arange(self.rows), share)

    def repeated(self, share: Share) -> int:
        """Of them, those whose prompt stands earlier in the source."""
        return self._owned(np.flatnonzero(~self._is_first()), share)

    def unsettled(self) -> tuple[int, str]:
        """How many rows have neither record nor dead letter, and one of them."""
        settled = np.frombuffer(self._settled, dtype=np.uint8).reshape(self.rows, self._samples)
        slots, samples = np.nonzero((settled == 0) & self._is_first()[:, np.newaxis])
        example = row_id(self._key(slots[0]), int(samples[0])) if len(slots) else ""
        return len(slots), example

    def _owned(self, slots: NDArray[np.intp], share: Share) -> int:
        if share.count == 1:
            return len(slots) * self._samples
        samples = range(self._samples)
        return sum(owns(share, row_id(self._key(slot), sample)) for slot in slots for sample in samples)

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
