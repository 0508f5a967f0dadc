"""Where the rows of files are: lines of JSON by their bytes, rows of Arrow by their batches."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
import orjson

from draftmill_jobs.prompts.sources.base import BrokenRow, IndexedRows


class LineIndex:
    """Lines of JSON in a file: 8 bytes of memory for each. Blank ones are no rows."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._starts = array("Q")
        file.seek(0)
        start = 0
        for line in file:
            if not line.isspace():
                self._starts.append(start)
            start += len(line)
        self._starts.append(start)

    def __len__(self) -> int:
        return len(self._starts) - 1

    def rows_at(self, positions: Iterable[int]) -> Iterator[Any]:
        """Yields the parsed lines."""
        for position in positions:
            start, end = self._starts[position], self._starts[position + 1]
            line, newline, _ = os.pread(self._file.fileno(), end - start, start).partition(b"\n")
            yield parse_row(line + newline)


class BatchIndex:
    """Rows in Arrow record batches.

    Args:
        batch: The batch of a number.
        lengths: Rows in each batch.
    """

    def __init__(self, batch: Callable[[int], Any], lengths: Sequence[int]) -> None:
        self._batch = batch
        self._ends = np.cumsum(lengths, dtype=np.int64)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def rows_at(self, positions: Iterable[int]) -> Iterator[Any]:
        """Yields rows as objects."""
        for position in positions:
            number = int(np.searchsorted(self._ends, position, side="right"))
            batch = self._batch(number)
            (row,) = batch.slice(position - int(self._ends[number]) + batch.num_rows, 1).to_pylist()
            yield row


class ChainedIndex:
    """The rows of several indexes, one after another."""

    def __init__(self, parts: Sequence[IndexedRows]) -> None:
        self._parts = parts
        self._ends = np.cumsum([len(part) for part in parts], dtype=np.int64)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def rows_at(self, positions: Iterable[int]) -> Iterator[Any]:
        """Yields the rows of whichever part has them."""
        for position in positions:
            number = int(np.searchsorted(self._ends, position, side="right"))
            part = self._parts[number]
            yield from part.rows_at([position - int(self._ends[number]) + len(part)])


def parse_row(line: bytes) -> Any:
    """The row of a line, or a `BrokenRow`."""
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return BrokenRow(line, f"not JSON: {error}")
