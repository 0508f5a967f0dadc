"""The parts of a dataset's folder: their names and files, and reading them line by line.

A part is what one worker writes: a file, or two when the compression was changed meanwhile. It has the name
of the bare one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import orjson

from draftmill_api.v1alpha1.synthrun import Compression
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.shared.lines import ZSTD_SUFFIX, RawLine, raw_lines
from draftmill_jobs.shared.settings import Share

T = TypeVar("T")

RECORDS = "raw_responses"
DEAD_LETTERS = "dead_letter"
ROW_ID: Final = "[0-9a-f]{32}(?:-t[0-9]+)?(?:-s[1-9][0-9]*)?"
_IS_ROW_ID: Final = re.compile(ROW_ID)


def is_row_id(value: Any) -> bool:
    """Whether this can be the identity of a row."""
    return isinstance(value, str) and _IS_ROW_ID.fullmatch(value) is not None


def part_path(folder: Path, stem: str, share: Share) -> Path:
    """The part that this worker writes."""
    suffix = "" if share.count == 1 else f"-{share.index}"
    return folder / f"{stem}{suffix}.jsonl"


def file_of(part: Path, compression: Compression) -> Path:
    """The file that is appended to for a part."""
    return part if compression is Compression.NONE else _compressed(part)


def files_of(part: Path) -> list[Path]:
    """The files that a part has."""
    return [path for path in (part, _compressed(part)) if path.exists()]


def part_of(file: Path) -> Path:
    """The part that a file belongs to."""
    return file.with_name(file.name.removesuffix(ZSTD_SUFFIX))


def part_paths(folder: Path, stem: str) -> list[Path]:
    """All files of a kind in the folder, whoever wrote them."""
    return [
        path
        for pattern in (f"{stem}.jsonl", f"{stem}-*.jsonl")
        for path in sorted({*folder.glob(pattern), *folder.glob(pattern + ZSTD_SUFFIX)})
    ]


def answer_files(folder: Path) -> list[Path]:
    """The files of records and of dead letters in the folder, whoever wrote them."""
    return [*part_paths(folder, RECORDS), *part_paths(folder, DEAD_LETTERS)]


def files_with_answers(folder: Path) -> list[Path]:
    """Those of `answer_files` that are not empty."""
    return [path for path in answer_files(folder) if path.stat().st_size]


def companion(records: Path) -> Path:
    """The dead letters of the worker that writes these records."""
    return records.with_name(records.name.replace(RECORDS, DEAD_LETTERS, 1))


def parts_of_all_workers(folder: Path) -> set[Path]:
    """The records' part of every worker that has written anything here, whether it exists or not."""
    by_records = {part_of(path) for path in part_paths(folder, RECORDS)}
    by_letters = {
        path.with_name(path.name.replace(DEAD_LETTERS, RECORDS, 1))
        for path in part_paths(folder, DEAD_LETTERS)
    }
    return by_records | by_letters


@dataclass(frozen=True, slots=True)
class Line:
    """One whole line.

    Attributes:
        value: Its JSON object.
        place: Where `lines.read_line_at` finds it again.
        end: Bytes of the file that hold it and all lines before it.
    """

    value: dict[str, Any]
    place: int
    end: int


def read_lines(path: Path) -> Iterator[Line]:
    """Yields the whole lines of a part's file.

    A tail that a crash left (half a line or frame, blank or zeroed space) is not a line and is left out.

    Raises:
        JobRefusedError: A broken line stands before a good one, which no crash of a writer leaves.
    """
    return (Line(value, raw.place, raw.end) for value, raw in whole_lines(path, parse_line))


def whole_lines(path: Path, parse: Callable[[bytes], T | None]) -> Iterator[tuple[T, RawLine]]:
    """The same with what `parse` makes of each line; it makes None of one that is torn or none of ours."""
    end = 0
    broken_at: int | None = None
    for raw in raw_lines(path):
        value = parse(raw.raw)
        if value is None:
            broken_at = end if broken_at is None else broken_at
        elif broken_at is not None:
            raise JobRefusedError(
                "OutputCorrupt",
                f"{path}: the line at byte {broken_at} is no record but lines after it are; "
                "something other than Draftmill changed the file: restore it or move it away",
            )
        else:
            yield value, raw
        end = raw.end


def parse_line(raw: bytes) -> dict[str, Any] | None:
    """The object of a whole line; None when it is torn or no line of ours."""
    if not raw.endswith(b"\n"):
        return None
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) and is_row_id(value.get("id")) else None


def _compressed(part: Path) -> Path:
    return part.with_name(part.name + ZSTD_SUFFIX)
