"""Rows in batches of Arrow: of files that the `datasets` library wrote, and of Parquet."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

import orjson

from draftmill_jobs.prompts.sources.base import IndexedRows, unreadable
from draftmill_jobs.prompts.sources.dataset import map_files

_AT_ONCE: Final = 256  # rows made objects at once
_PLAIN: Final = {"Value", "ClassLabel", "Sequence", "List", "LargeList"}
"""Kinds of columns that stand in the files as what they are; others are decoded by the library."""


class ArrowSource:
    """Arrow files, one after another, read as streams: mapped ones would be in memory whole in the end.

    Args:
        paths: The files.
        identity: The same as long as the rows are the same; None when nobody knows.

    Raises:
        JobRefusedError: A file is none.
    """

    def __init__(self, paths: Sequence[Path], identity: str | None) -> None:
        self._paths, self._identity = paths, identity
        self._is_plain = set().union(*map(_kinds_in, paths)) <= _PLAIN

    def identity(self) -> str | None:
        """As it was given."""
        return self._identity

    def rows(self, wanted: Sequence[int] | None = None) -> Iterator[Any]:
        """Yields rows as objects."""
        if not self._is_plain:
            return map_files(self._paths).rows(wanted)
        return rows_of((batch for path in self._paths for batch in _batches(path)), wanted)

    def indexed(self, scratch: Path) -> AbstractContextManager[IndexedRows]:  # noqa: ARG002 - no copy is needed
        """The same, mapped into memory."""
        return nullcontext(map_files(self._paths))


def rows_of(batches: Iterable[Any], wanted: Sequence[int] | None) -> Iterator[Any]:
    """The rows of record batches, or those at the wanted positions, which ascend, as objects."""
    start = 0
    for batch in batches:
        stop = start + len(batch)
        if wanted is not None:
            first, last = bisect_left(wanted, start), bisect_left(wanted, stop)
            batch = batch.take([position - start for position in wanted[first:last]])  # noqa: PLW2901
        for offset in range(0, len(batch), _AT_ONCE):
            yield from batch.slice(offset, _AT_ONCE).to_pylist()
        start = stop


def _batches(path: Path) -> Iterator[Any]:
    with _opened(path) as batches:
        yield from batches


def _kinds_in(path: Path) -> set[str]:
    """The kinds of a file's columns, as the library's note in it says."""
    with _opened(path) as batches:
        note = (batches.schema.metadata or {}).get(b"huggingface")
    return _kinds(orjson.loads(note)) if note is not None else set()


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    import pyarrow as pa  # noqa: PLC0415 - heavy, and not always needed

    try:
        with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as batches:
            yield batches
    except (pa.ArrowInvalid, OSError) as error:
        raise unreadable(f"cannot read {path} as Arrow: {error}") from error


def _kinds(features: Any) -> set[str]:
    if isinstance(features, dict):
        kind = features.get("_type")
        found = {kind} if isinstance(kind, str) else set()
        return found.union(*map(_kinds, features.values()))
    return set().union(*map(_kinds, features)) if isinstance(features, list) else set()
