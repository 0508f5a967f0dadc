"""Rows with which a server is proven: of all lengths, and some to choose from at each."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from draftmill_jobs.extract.index import Input, RowIndex
from draftmill_jobs.extract.records import Row

_CHOICE: Final = 5  # rows at a place
_HUNDREDTH: Final = 100


@dataclass(frozen=True, slots=True)
class Sample:
    """Rows by length. Those that are stored are among them: only bad ones may be left.

    Attributes:
        source: Reads them.
        index: Where they are.
        order: Their numbers, the longest first.
        longest_left: Number of the longest row that is left to do.
    """

    source: Input
    index: RowIndex
    order: Sequence[int]
    longest_left: int

    @classmethod
    def of(cls, source: Input, index: RowIndex) -> Sample:
        """All rows of an index, of which some are left."""
        return cls(source, index, index.longest_first(settled=True), index.longest_first()[0])

    def longest(self) -> Row:
        """The longest row that is left.

        Raises:
            JobRefusedError: The records were changed meanwhile.
        """
        (row,) = self.source.read(self.index, [self.longest_left])
        return row

    def shorter_than(self, tokens: int) -> Sample:
        """The rows that have fewer tokens."""
        first = bisect_right(self.order, -tokens, key=lambda row: -self.index.tokens(row))
        return replace(self, order=self.order[first:])

    def spread(self, count: int) -> list[int]:
        """At most so many places in the order, evenly from the longest row to the shortest, both included."""
        last = len(self.order) - 1
        return sorted({round(i * last / max(1, count - 1)) for i in range(count)})

    def near(self, place: int) -> list[Row]:
        """The row at a place and some others of about its length, the nearest first.

        They are apart by a hundredth of all rows, so many as a run may lose: bad rows are often alike in
        length.

        Raises:
            JobRefusedError: The records were changed meanwhile.
        """
        step = max(1, len(self.order) // _HUNDREDTH)
        steps = sorted(range(1 - _CHOICE, _CHOICE), key=abs)
        places = [at for each in steps if 0 <= (at := place + each * step) < len(self.order)]
        return list(self.source.read(self.index, [self.order[at] for at in places[:_CHOICE]]))
