"""The index of a store: the parts of its workers, and their merge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from draftmill_api.store import StoreLine
from draftmill_jobs.shared.files import write_atomically
from draftmill_jobs.store.errors import StoreCorruptError
from draftmill_jobs.store.folder import INDEX_FILE, index_parts
from draftmill_jobs.store.lines import read_lines, render_lines


def read_index(folder: Path) -> list[StoreLine]:
    """The rows of the sealed shards: from `index.jsonl`, or from the workers' parts until there is one.

    In the order of shards and offsets.

    Raises:
        StoreCorruptError: There is no store, a line cannot be read, or a row is there twice.
    """
    whole = folder / INDEX_FILE
    return _each_once(rows_of([whole] if whole.exists() else index_parts(folder), folder))


def write_index(folder: Path) -> list[StoreLine]:
    """Merges the parts of all workers into `index.jsonl`; nobody writes there any longer.

    Raises:
        StoreCorruptError: There is no store, a line cannot be read, or a row is there twice.
    """
    rows = _each_once(rows_of(index_parts(folder), folder))
    write_atomically(folder / INDEX_FILE, render_lines(rows))
    return rows


def rows_of(files: Sequence[Path], folder: Path) -> list[StoreLine]:
    """The lines of index files, in the order of shards and offsets.

    Raises:
        StoreCorruptError: There is no file, or a line cannot be read.
    """
    if not files:
        raise StoreCorruptError(f"there is no index of a store in {folder}")
    rows = [row for file in files for row in read_lines(file, StoreLine).values]
    return sorted(rows, key=lambda row: (row.shard, row.offset))


def doubles(rows: Sequence[StoreLine]) -> Iterator[str]:
    """Which rows are there twice."""
    seen: dict[tuple[str, str], StoreLine] = {}
    for row in rows:
        if first := seen.get(row.key):
            yield f"{row.shard}: row {row.dataset}/{row.id} is there, and in {first.shard} too"
        seen[row.key] = row


def _each_once(rows: list[StoreLine]) -> list[StoreLine]:
    if fault := next(doubles(rows), None):
        raise StoreCorruptError(fault)
    return rows
