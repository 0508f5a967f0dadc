"""What every source is: rows at fixed positions, read as a stream or by position."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from draftmill_jobs.errors import JobRefusedError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BrokenRow:
    """A line that is no JSON."""

    line: bytes
    problem: str


class Source(Protocol):
    """Rows in a fixed order, read as a stream, as often as needed."""

    def identity(self) -> str | None:
        """The same as long as the rows are the same; None where to know that takes reading all of them."""
        ...

    def rows(self, wanted: Sequence[int] | None = None) -> Iterator[Any]:
        """Yields each row, or a `BrokenRow` in its place.

        Args:
            wanted: Only those at these positions, which ascend; others are not parsed where that can be.

        Raises:
            JobRefusedError: The source cannot be read to its end.
        """
        ...

    def indexed(self, scratch: Path) -> AbstractContextManager[IndexedRows]:
        """The same rows, to be read by position within the block, with a few bytes of memory for each.

        Args:
            scratch: Folder for a copy, without a name, of what cannot be read by position where it is.

        Raises:
            JobRefusedError: The source cannot be read to its end.
        """
        ...


class IndexedRows(Protocol):
    """Rows that are read by position."""

    def __len__(self) -> int:
        """How many there are."""
        ...

    def rows_at(self, positions: Iterable[int]) -> Iterator[Any]:
        """Yields the rows at these positions, or a `BrokenRow` in the place of one."""
        ...


def chosen(rows: Iterable[T], wanted: Sequence[int] | None) -> Iterator[T]:
    """Those of the rows that stand at the wanted positions; all when none are named."""
    if wanted is None:
        yield from rows
        return
    positions = iter(wanted)
    position = next(positions, None)
    for number, row in enumerate(rows):
        if position is None:
            return
        if number == position:
            yield row
            position = next(positions, None)


def unreadable(sentence: str) -> JobRefusedError:
    """A source that is there and cannot be used."""
    return JobRefusedError("PromptsUnreadable", sentence)
