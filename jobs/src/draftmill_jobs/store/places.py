"""Which rows a store has, and where: 32 bytes for each, however long their names."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import xxhash

from draftmill_api.store import StoreLine

_MERGE: Final = 4096
_ENTRY: Final = np.dtype([("high", "u8"), ("low", "u8"), ("offset", "u8"), ("shard", "u4"), ("tokens", "u4")])


class Place(NamedTuple):
    """Where a row is."""

    shard: str
    offset: int
    tokens: int


class RowPlaces:
    """The rows by (dataset, id): of a sorted array, and of a few that are not yet in it."""

    def __init__(self) -> None:
        self._entries = np.empty(0, _ENTRY)
        self._fresh: dict[tuple[int, int], tuple[int, int, int]] = {}
        self._shards: list[str] = []
        self._numbers: dict[str, int] = {}
        self._taken = 0  # entries of the array that count no longer: their tokens are 0

    def __len__(self) -> int:
        return len(self._entries) - self._taken + len(self._fresh)

    def add(self, row: StoreLine) -> None:
        """Takes a row in."""
        shard = self._numbers.setdefault(row.shard, len(self._shards))
        if shard == len(self._shards):
            self._shards.append(row.shard)
        self._fresh[_digest(row.key)] = (row.offset, shard, row.tokens)
        if len(self._fresh) >= max(_MERGE, len(self._entries) // 16):
            self._merge()

    def find(self, key: tuple[str, str]) -> Place | None:
        """Where a row is; None when it is not there."""
        digest = _digest(key)
        if digest in self._fresh:
            return self._place(*self._fresh[digest])
        entry = self._entry(digest)
        return None if entry is None else self._place(entry["offset"], entry["shard"], entry["tokens"])

    def take_out(self, key: tuple[str, str]) -> Place | None:
        """Where a row was, which is no longer among them; None when it is not there."""
        digest = _digest(key)
        if digest in self._fresh:
            return self._place(*self._fresh.pop(digest))
        entry = self._entry(digest)
        if entry is None:
            return None
        place = self._place(entry["offset"], entry["shard"], entry["tokens"])
        entry["tokens"] = 0
        self._taken += 1
        return place

    def _place(self, offset: int, shard: int, tokens: int) -> Place:
        return Place(self._shards[int(shard)], int(offset), int(tokens))

    def _entry(self, digest: tuple[int, int]) -> np.void | None:
        """A view of a row's entry in the array."""
        high, low = digest
        highs = self._entries["high"]
        at = int(np.searchsorted(highs, np.uint64(high)))
        while at < len(highs) and highs[at] == high:
            entry: np.void = self._entries[at]
            if entry["low"] == low and entry["tokens"]:
                return entry
            at += 1
        return None

    def _merge(self) -> None:
        fresh = np.array([(*digest, *place) for digest, place in self._fresh.items()], _ENTRY)
        entries = np.concatenate([self._entries, fresh])
        self._entries = entries[np.argsort(entries["high"], kind="stable")]
        self._fresh = {}


def _digest(key: tuple[str, str]) -> tuple[int, int]:
    value = xxhash.xxh3_128_intdigest("\0".join(key).encode())
    return value >> 64, value & ((1 << 64) - 1)
