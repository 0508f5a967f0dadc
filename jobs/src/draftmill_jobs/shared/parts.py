"""The part files of a dataset's folder: their names, and reading them line by line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.shared.settings import Share

RECORDS = "raw_responses"
DEAD_LETTERS = "dead_letter"
_ROW_ID = re.compile(r"[0-9a-f]{32}(-s[1-9][0-9]*)?")


def is_row_id(value: Any) -> bool:
    """Whether this can be the identity of a row."""
    return isinstance(value, str) and _ROW_ID.fullmatch(value) is not None


def part_path(folder: Path, stem: str, share: Share) -> Path:
    """The file that this worker appends to."""
    suffix = "" if share.count == 1 else f"-{share.index}"
    return folder / f"{stem}{suffix}.jsonl"


def part_paths(folder: Path, stem: str) -> list[Path]:
    """All files of a kind in the folder, whoever wrote them."""
    return sorted(folder.glob(f"{stem}.jsonl")) + sorted(folder.glob(f"{stem}-*.jsonl"))


def companion(records: Path) -> Path:
    """The dead letters of the worker that writes these records."""
    return records.with_name(records.name.replace(RECORDS, DEAD_LETTERS, 1))


def parts_of_all_workers(folder: Path) -> set[Path]:
    """The record file of every worker that has written anything here, whether it exists or not."""
    by_records = set(part_paths(folder, RECORDS))
    by_letters = {
        path.with_name(path.name.replace(DEAD_LETTERS, RECORDS, 1))
        for path in part_paths(folder, DEAD_LETTERS)
    }
    return by_records | by_letters


@dataclass(frozen=True, slots=True)
class Line:
    """One whole line: its JSON object, and where the next line starts in the file."""

    value: dict[str, Any]
    end: int


def read_lines(path: Path) -> Iterator[Line]:
    """Yields the whole lines of a part file.

    A tail that a crash left (no newline, half a line, blank or zeroed space) is not a line and is left out.

    Raises:
        JobRefusedError: A broken line stands before a good one, which no crash of a writer leaves.
    """
    broken_at: int | None = None
    offset = 0
    with path.open("rb") as file:
        for raw in file:
            start, offset = offset, offset + len(raw)
            value = parse_line(raw)
            if value is None:
                broken_at = start if broken_at is None else broken_at
            elif broken_at is not None:
                raise JobRefusedError(
                    "OutputCorrupt",
                    f"{path}: the line at byte {broken_at} is no record but lines after it are; "
                    "something other than Draftmill changed the file: restore it or move it away",
                )
            else:
                yield Line(value, offset)


def parse_line(raw: bytes) -> dict[str, Any] | None:
    """The object of a whole line; None when it is torn or no line of ours."""
    if not raw.endswith(b"\n"):
        return None
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) and is_row_id(value.get("id")) else None
