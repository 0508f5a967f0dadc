"""What a store holds, for whoever comes to it: read without its locks, and before anything is written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from draftmill_api.jobconfig import JobRun
from draftmill_api.store import JournalLine, StoreLine
from draftmill_jobs.store.errors import StoreDiffersError
from draftmill_jobs.store.folder import index_parts, journals
from draftmill_jobs.store.layout import TOKEN_ID_BYTES, StateLayout
from draftmill_jobs.store.lines import iterate_lines
from draftmill_jobs.store.places import Place, RowPlaces
from draftmill_jobs.store.shard import partial_of, shard_of


class UnclaimedRows:
    """The rows of a store that no record has claimed: when all records have been read, they are strangers."""

    def __init__(self, folder: Path) -> None:
        """Reads indexes and journals, some 32 bytes of each row.

        Raises:
            StoreCorruptError: A broken line stands before a good one.
        """
        self._folder = folder
        self._places = RowPlaces()
        for line in stored_lines(folder):
            if self._places.find(line.key) is None:
                self._places.add(line)

    def claim(self, key: tuple[str, str]) -> Place | None:
        """Where the row of a record is, which is no stranger; None when the store does not have it."""
        return self._places.take_out(key)

    def check_none_left(self, last: JobRun | None) -> None:
        """Refuses a store with rows that no record has claimed.

        Args:
            last: The run that wrote to the store before, for the sentence; None when that is not known.

        Raises:
            StoreDiffersError: There are some.
        """
        if not self._places:
            return
        left = (line for line in stored_lines(self._folder) if self._places.find(line.key))
        example = next((f", such as {line.dataset}/{line.id}" for line in left), "")
        writer = f"; the last to write there was run {_name(last)}" if last is not None else ""
        raise StoreDiffersError(
            f"{self._folder} holds rows that are not among those that this run selects, {len(self._places)} "
            f"in all{example}{writer}"
        )


def stored_lines(folder: Path) -> Iterator[StoreLine]:
    """The rows of open shards, by their journals, and of sealed ones, by the workers' indexes.

    Those of a shard that is gone are not in the store. While workers are at work, files come and go, and a
    row may be told of twice: its line goes to the index before it leaves the journal.

    Raises:
        StoreCorruptError: A broken line stands before a good one.
    """
    for journal in journals(folder):
        shard = shard_of(journal)
        if partial_of(shard).exists() or shard.exists():
            yield from (line.row for line, _ in iterate_lines(journal, JournalLine))
    is_there = cache(lambda name: (folder / name).exists())
    for index in index_parts(folder):
        for line, _ in iterate_lines(index, StoreLine):
            if is_there(line.shard):
                yield line


def stored_ids(folder: Path, place: Place, layout: StateLayout) -> NDArray[np.int32]:
    """The token ids `int32[T]` of a row, be its shard open or sealed; fewer when they are not all there."""
    start, size = place.offset + layout.block(place.tokens).token_ids, TOKEN_ID_BYTES * place.tokens
    path = folder / place.shard
    for file in (partial_of(path), path):  # in this order, for it may be sealed meanwhile
        try:
            with file.open("rb") as opened:
                found = os.pread(opened.fileno(), size, start)
        except FileNotFoundError:
            continue
        return np.frombuffer(found, np.int32, len(found) // TOKEN_ID_BYTES)
    return np.empty(0, np.int32)


def _name(run: JobRun) -> str:
    return f"{run.namespace}/{run.name}" if run.namespace else run.name
