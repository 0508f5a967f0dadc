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
from draftmill_jobs.shared.parts import parse_line
from draftmill_jobs.shared.settings import Share


@dataclass(slots=True)
class RowIndex:
    """Rows to extract: 14 bytes each."""

    _files: array[int] = field(default_factory=lambda: array("H"))
    _offsets: array[int] = field(default_factory=lambda: array("Q"))
    _tokens: array[int] = field(default_factory=lambda: array("I"))

    def __len__(self) -> int:
        return len(self._tokens)

    def add(self, file: int, offset: int, tokens: int) -> None:
        """Takes a row in."""
        self._files.append(file)
        self._offsets.append(offset)
        self._tokens.append(tokens)

    def tokens(self, row: int) -> int:
        """Tokens of a row, after the cut."""
        return self._tokens[row]

    def place(self, row: int) -> tuple[int, int]:
        """Number of a row's file, and where its line starts."""
        return self._files[row], self._offsets[row]

    def longest_first(self) -> Sequence[int]:
        """The rows by length, so that rows of like length stand together and the longest fail first."""
        order = np.argsort(-np.frombuffer(self._tokens, np.uint32).astype(np.int64), kind="stable")
        return array("I", order.astype(np.uint32).tobytes())


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
            is_done: Whether a row of the share is settled already, so that it does not.

        Raises:
            JobRefusedError: The records cannot be used.
        """
        survey, index = Survey(max_rows), RowIndex()
        for found in read_records(self.files, self.rules, self.model):
            if survey.take(found.kept, found.tokens) and found.row is not None:
                row = found.row
                if owns(share, row.facts.id) and not is_done(row):
                    index.add(found.file, found.offset, row.tokens)
        return survey, index

    def read(self, index: RowIndex, rows: Sequence[int]) -> Iterator[Row]:
        """Reads rows again, one at a time.

        Raises:
            JobRefusedError: The files are no longer what they were.
        """
        for number in rows:
            file, offset = index.place(number)
            yield self._read(self.files.paths[file], offset, index.tokens(number))

    def _read(self, path: Path, offset: int, tokens: int) -> Row:
        with path.open("rb") as file:
            file.seek(offset)
            value = parse_line(file.readline())
        row = None
        if value is not None:
            _, _, row = judge(value, self.rules, self.model, where=f"{path}, byte {offset}")
        if row is None or row.tokens != tokens:
            raise JobRefusedError(
                "InputChanged", f"{path} was changed while it was being read, at byte {offset}"
            )
        return row
