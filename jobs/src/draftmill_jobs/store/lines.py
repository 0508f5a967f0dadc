"""Files of JSON lines that only grow: journals and indexes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import BaseModel, ValidationError

from draftmill_jobs.store.errors import StoreCorruptError

LineModel = TypeVar("LineModel", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Lines(Generic[LineModel]):
    """The whole lines of a file, and where each ends; the file may have a torn tail behind the last."""

    values: list[LineModel]
    ends: list[int]

    @property
    def end(self) -> int:
        """Where the last whole line ends."""
        return self.ends[-1] if self.ends else 0


def read_lines(path: Path, model: type[LineModel]) -> Lines[LineModel]:
    """Reads a file; one that is not there has no lines.

    Raises:
        StoreCorruptError: A broken line stands before a good one, which no crash of a writer leaves.
    """
    lines: Lines[LineModel] = Lines([], [])
    for value, end in iterate_lines(path, model):
        lines.values.append(value)
        lines.ends.append(end)
    return lines


def iterate_lines(path: Path, model: type[LineModel]) -> Iterator[tuple[LineModel, int]]:
    """The whole lines of a file, one after another, and where each ends; none when it is not there.

    What a crash left behind the last whole line (half a line, blank or zeroed space) is not a line.

    Raises:
        StoreCorruptError: A broken line stands before a good one, which no crash of a writer leaves.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    broken_at: int | None = None
    offset = 0
    with file:
        for raw in file:
            start, offset = offset, offset + len(raw)
            value = _parsed(raw, model)
            if value is None:
                broken_at = start if broken_at is None else broken_at
            elif broken_at is not None:
                raise StoreCorruptError(
                    f"{path}: the line at byte {broken_at} cannot be read, but lines after it can"
                )
            else:
                yield value, offset


def render_lines(values: Iterable[BaseModel]) -> bytes:
    """The lines of a file."""
    return b"".join(value.model_dump_json(exclude_none=True).encode() + b"\n" for value in values)


def cut_torn_tail(path: Path, model: type[LineModel]) -> None:
    """Cuts off what a crash left behind the last whole line, durably.

    Raises:
        StoreCorruptError: A broken line stands before a good one, which no crash of a writer leaves.
    """
    end = 0
    for _, line_end in iterate_lines(path, model):
        end = line_end
    cut_file(path, end)


def cut_file(path: Path, end: int) -> None:
    """Cuts a file off, durably."""
    if path.exists() and path.stat().st_size > end:
        with path.open("r+b") as file:
            file.truncate(end)
            os.fsync(file.fileno())


def _parsed(raw: bytes, model: type[LineModel]) -> LineModel | None:
    if not raw.endswith(b"\n"):
        return None
    try:
        return model.model_validate_json(raw)
    except ValidationError:
        return None
