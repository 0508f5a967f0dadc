"""Whether sealed shards are what the index says: cheaply by their headers, closely by every row's hash."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import BinaryIO, Final

import xxhash

from draftmill_api.store import StoreLine
from draftmill_jobs.store.errors import StoreCorruptError
from draftmill_jobs.store.folder import sealed_shards
from draftmill_jobs.store.layout import StateLayout
from draftmill_jobs.store.lines import iterate_lines
from draftmill_jobs.store.mapping import read_places
from draftmill_jobs.store.shard import journal_of
from draftmill_jobs.store.tensors import TensorFileError

REMEDY: Final = "restore that file, or remove it and run again: its rows are asked for anew then"
"""What to do about a shard that is broken."""

_CHUNK: Final = 1 << 20


def by_shard(rows: Iterable[StoreLine]) -> dict[str, list[StoreLine]]:
    """The rows of each shard, in the order of their offsets."""
    ordered = sorted(rows, key=lambda row: (row.shard, row.offset))
    return {shard: list(group) for shard, group in groupby(ordered, key=lambda row: row.shard)}


def header_faults(shard: Path, rows: Sequence[StoreLine], layout: StateLayout) -> Iterator[str]:
    """In what a shard's size and header differ from its rows in the index; no data is read."""
    try:
        places = read_places(shard)
    except FileNotFoundError:
        yield f"{shard.name}: missing, with {len(rows)} rows, the first {_name(rows[0])}"
        return
    except (OSError, TensorFileError) as error:
        yield f"{shard.name}: {error}; it holds {len(rows)} rows, the first {_name(rows[0])}"
        return
    lengths = [row.tokens for row in rows]
    expected = layout.places(lengths, rows[0].offset)
    for index, row in enumerate(rows):
        names = [f"{index}.{part}" for part in layout.parts]
        is_there = all(places.get(name) == expected[name] for name in names)
        if not is_there or row.offset != expected[f"{index}.states"].begin:
            yield f"{shard.name}: row {_name(row)} is not where the index says"
            return
    if extra := places.keys() - expected.keys():
        yield f"{shard.name}: {len(extra)} tensors of rows that the index does not name, such as {min(extra)}"


def check_sealed(folder: Path, indexes: Iterable[Path], layout: StateLayout) -> None:
    """Refuses sealed shards that are not what their index says, for their rows would count as done.

    Sizes and headers are read, no states. A shard whose journal is still there is only on its way into the
    index, and is not looked at.

    Args:
        folder: Of the store.
        indexes: Those of the workers whose shards are looked at.
        layout: Of the store.

    Raises:
        StoreCorruptError: One is cut or another one; the message says what to do.
    """
    at_rest = {name for name in sealed_shards(folder) if not journal_of(folder / name).exists()}
    for index in indexes:
        lines = (line for line, _ in iterate_lines(index, StoreLine))
        for shard, rows in groupby(lines, key=lambda row: row.shard):
            if shard not in at_rest:
                continue
            ordered = sorted(rows, key=lambda row: row.offset)
            if fault := next(header_faults(folder / shard, ordered, layout), None):
                raise StoreCorruptError(f"{folder}: {fault}; {REMEDY}")


def hash_faults(
    shard: Path,
    rows: Sequence[StoreLine],
    layout: StateLayout,
    *,
    seen: Callable[[bytes], None] | None = None,
) -> Iterator[str]:
    """Which rows of a shard are not what their hashes say. Its header is as `header_faults` wants it.

    Args:
        shard: The file.
        rows: All its rows, in the order of their offsets.
        layout: Of the store.
        seen: Given all bytes of the file in their order, when all faults have been taken.
    """
    take = seen or _ignore
    with shard.open("rb") as file:
        blocks_end = rows[-1].offset + layout.block(rows[-1].tokens).end
        file.seek(blocks_end)
        masks = file.read()
        file.seek(0)
        for _ in _chunks(file, rows[0].offset, take):
            pass
        start = 0
        for row in rows:
            digest = xxhash.xxh3_128()
            for chunk in _chunks(file, layout.block(row.tokens).end, take):
                digest.update(chunk)
            digest.update(masks[start : start + row.tokens])
            start += row.tokens
            if digest.hexdigest() != row.hash:
                yield f"{shard.name}: row {_name(row)} has changed since it was written"
        take(masks)


def _chunks(file: BinaryIO, size: int, take: Callable[[bytes], None]) -> Iterator[bytes]:
    while size and (chunk := file.read(min(_CHUNK, size))):
        size -= len(chunk)
        take(chunk)
        yield chunk


def _ignore(_: bytes) -> None:
    """Nobody wants to see them."""


def _name(row: StoreLine) -> str:
    return f"{row.dataset}/{row.id}"
