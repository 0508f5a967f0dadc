"""Files of rows by their kinds: JSON lines, a JSON array, Parquet, Arrow as `datasets` has it."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from draftmill_jobs.prompts.sources.array import array_items
from draftmill_jobs.prompts.sources.arrow import ArrowSource, rows_of
from draftmill_jobs.prompts.sources.base import IndexedRows, Source, chosen, unreadable
from draftmill_jobs.prompts.sources.compression import bare_name, open_stream
from draftmill_jobs.prompts.sources.indexes import BatchIndex, LineIndex, parse_row
from draftmill_jobs.shared.files import sha256_of

KINDS: Final = "a .jsonl or .json file, bare, .gz or .zst, or a .parquet or .arrow file"

_BATCH: Final = 256  # rows decoded at once
_BUFFER: Final = 1 << 20  # bytes of a column or of a text read at once


def is_supported(path: Path) -> bool:
    """Whether a file is of a kind that can be read."""
    bare = bare_name(path)
    return bare.suffix in {".jsonl", ".json"} or (bare == path and path.suffix in {".parquet", ".arrow"})


def open_file(path: Path) -> Source:
    """Chooses the reader of a file.

    Raises:
        JobRefusedError: It is of another kind, or not what its name says.
    """
    if not is_supported(path):
        raise unreadable(f"{path}: use {KINDS}")
    match bare_name(path).suffix:
        case ".parquet":
            return ParquetSource(path)
        case ".arrow":
            return ArrowSource([path], sha256_of(path))
        case ".json" if _starts_as_array(path):
            return JsonSource(path)
        case _:
            return JsonLinesSource(path)


class _FileSource:
    """Rows of one file, which are the same as long as its bytes are."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def identity(self) -> str:
        """The hash of the file."""
        return sha256_of(self._path)


class JsonLinesSource(_FileSource):
    """One JSON object a line; blank lines are no rows."""

    def rows(self, wanted: Sequence[int] | None = None) -> Iterator[Any]:
        """Yields the parsed lines."""
        with open_stream(self._path) as file:
            lines = (line for line in file if not line.isspace())
            yield from map(parse_row, chosen(lines, wanted))

    @contextmanager
    def indexed(self, scratch: Path) -> Iterator[IndexedRows]:
        """Where each line starts; a compressed file is unpacked to scratch for it."""
        with open_stream(self._path) as file:
            if bare_name(self._path) == self._path:
                yield LineIndex(file)
                return
            with tempfile.TemporaryFile(dir=scratch) as copy:
                shutil.copyfileobj(file, copy, _BUFFER)
                yield LineIndex(copy)


class JsonSource(_FileSource):
    """A file that holds one JSON array of rows, read piece by piece."""

    def rows(self, wanted: Sequence[int] | None = None) -> Iterator[Any]:
        """Yields the array's items."""
        with open_stream(self._path) as file:
            try:
                yield from chosen(array_items(iter(lambda: file.read(_BUFFER), b"")), wanted)
            except ValueError as error:
                raise unreadable(f"{self._path} is not JSON: {error}") from error

    @contextmanager
    def indexed(self, scratch: Path) -> Iterator[IndexedRows]:
        """The items as lines, copied to scratch."""
        with tempfile.TemporaryFile(dir=scratch) as copy:
            for row in self.rows():
                copy.write(json.dumps(row).encode() + b"\n")
            yield LineIndex(copy)


class ParquetSource(_FileSource):
    """A Parquet file, read in batches."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa  # noqa: PLC0415 - heavy, and not always needed
        from pyarrow import parquet  # noqa: PLC0415 - heavy, and not always needed

        super().__init__(path)
        try:
            self._file = parquet.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False)
        except pa.ArrowInvalid as error:
            raise unreadable(f"{path} is not Parquet: {error}") from error

    def rows(self, wanted: Sequence[int] | None = None) -> Iterator[Any]:
        """Yields rows as objects."""
        return rows_of(self._file.iter_batches(batch_size=_BATCH), wanted)

    @contextmanager
    def indexed(self, scratch: Path) -> Iterator[IndexedRows]:
        """The batches, unpacked to scratch."""
        import pyarrow as pa  # noqa: PLC0415 - heavy, and not always needed

        with tempfile.TemporaryFile(dir=scratch) as copy:
            lengths = []
            with pa.ipc.new_file(copy, self._file.schema_arrow) as writer:
                for batch in self._file.iter_batches(batch_size=_BATCH):
                    writer.write_batch(batch)
                    lengths.append(batch.num_rows)
            yield BatchIndex(pa.ipc.open_file(copy).get_batch, lengths)


def _starts_as_array(path: Path) -> bool:
    with open_stream(path) as file:
        return file.read(4096).lstrip()[:1] == b"["
