"""Where this worker's rows are in the files: a few bytes for each, whatever their length."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from draftmill_api.v1alpha1.status import ModelFacts
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.extract.records import RecordFiles, Row, judge, read_records
from draftmill_jobs.extract.selection import Rules, Survey
from draftmill_jobs.prompts.rows import owns
from draftmill_jobs.shared.lines import read_line_at
from draftmill_jobs.shared.parts import parse_line
from draftmill_jobs.shared.settings import Share


@dataclass(slots=True)
class _Places:
    """Where rows are: 14 bytes each."""

    files: array[int] = field(default_factory=lambda: array("H"))
    places: array[int] = field(default_factory=lambda: array("Q"))
    tokens: array[int] = field(default_factory=lambda: array("I"))


@dataclass(slots=True)
class RowIndex:
    """Rows by number: first those that are left to do, as many as its length, then those that are settled."""

    _left: _Places = field(default_factory=_Places)
    _settled: _Places = field(default_factory=_Places)

    def __len__(self) -> int:
        return len(self._left.tokens)

    def add(self, file: int, place: int, tokens: int, *, is_left: bool = True) -> None:
        """Takes a row in. Numbers stand when all rows are there."""
        places = self._left if is_left else self._settled
        places.files.append(file)
        places.places.append(place)
        places.tokens.append(tokens)

    def tokens(self, row: int) -> int:
        """Tokens of a row, after the cut."""
        places, at = self._find(row)
        return places.tokens[at]

    def place(self, row: int) -> tuple[int, int]:
        """Number of a row's file, and its place in it."""
        places, at = self._find(row)
        return places.files[at], places.places[at]

    def longest_first(self, *, settled: bool = False) -> Sequence[int]:
        """The rows by length, so that rows of like length stand together and the longest fail first.

        Args:
            settled: Those that are settled too.
        """
        groups = (self._left, self._settled) if settled else (self._left,)
        lengths = [np.frombuffer(each.tokens, np.uint32) for each in groups if each.tokens]
        order = np.argsort(-np.concatenate(lengths).astype(np.int64), kind="stable")
        return array("I", order.astype(np.uint32).tobytes())

    def _find(self, row: int) -> tuple[_Places, int]:
        left = len(self)
        return (self._left, row) if row < left else (self._settled, row - left)


@dataclass(frozen=True, slots=True)
class Input:
    """The records as every step reads them."""

    files: RecordFiles
    rules: Rules
    model: ModelFacts

    def survey(
        self,
        max_rows: int | None,
        *,
        share: Share,
        is_done: Callable[[Row], bool],
    ) -> tuple[Survey, RowIndex]:
        """Reads every record once.

        Args:
            max_rows: Rows beyond these are left out.
            share: The rows that go into the index.
            is_done: Whether a row of the share is settled already.

        Raises:
            JobRefusedError: The records cannot be used.
        """
        survey, index = Survey(max_rows), RowIndex()
        for found in read_records(self.files, self.rules, self.model):
            if survey.take(found.kept, found.tokens) and found.row is not None:
                row = found.row
                if owns(share, row.facts.id):
                    index.add(found.file, found.place, row.tokens, is_left=not is_done(row))
        return survey, index

    def read(self, index: RowIndex, rows: Sequence[int]) -> Iterator[Row]:
        """Reads rows again, one at a time.

        Raises:
            JobRefusedError: The files are no longer what they were.
        """
        for number in rows:
            file, place = index.place(number)
            yield self._read(self.files.paths[file], place, index.tokens(number))

    def _read(self, path: Path, place: int, tokens: int) -> Row:
        value = parse_line(read_line_at(path, place))
        row = None
        if value is not None:
            _, _, row = judge(value, self.rules, self.model, where=f"{path}, row {value['id']}")
        if row is None or row.tokens != tokens:
            raise JobRefusedError(
                "InputChanged",
                f"{path} was changed while it was being read; create the run again when nobody writes there",
            )
        return row
