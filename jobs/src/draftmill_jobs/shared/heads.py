"""The few fields of a record that say what became of its row, without parsing the rest of its line.

A record of 8,192 tokens is parsed in a quarter of a millisecond and looked through in a few microseconds. The
finish step parses and checks every line in full.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from draftmill_api.record import RecordStatus
from draftmill_jobs.shared.parts import ROW_ID, parse_line, whole_lines

_STATUSES: Final = {status.value.encode(): status for status in RecordStatus}
_BEGIN: Final = re.compile(
    rb'\{"id":"(' + ROW_ID.encode() + rb')","prompt_key":"[0-9a-f]{32}","sample_id":[0-9]+,'
    rb'"dataset":"[A-Za-z0-9_.-]+","turn":[0-9]+,"sample":[0-9]+,"prompt_ids":\['
)
_BETWEEN: Final = b'],"output_ids":['
_COUNTS: Final = re.compile(
    rb'\],"prompt_tokens":[0-9]+,"completion_tokens":([0-9]+),'
    rb'"finish_reason":"([a-z_]+)","status":"([a-z_]+)",'
)
_END: Final = b"}\n"


class Head(NamedTuple):
    """What became of a row that has a record."""

    id: str
    completion_tokens: int
    finish_reason: str
    status: RecordStatus


def read_heads(path: Path) -> Iterator[Head]:
    """Yields the head of every whole record of a part's file.

    Raises:
        JobRefusedError: A broken line stands before a good one, which no crash of a writer leaves.
    """
    return (head for head, _ in whole_lines(path, read_head))


def read_head(raw: bytes) -> Head | None:
    """A line's head; None when the line is torn or no record of ours."""
    return glance(raw) or _parse(raw)


def glance(raw: bytes) -> Head | None:
    """The head of a line that looks like one of the writer's own from its beginning to the counts."""
    begin = _BEGIN.match(raw)
    if begin is None or not raw.endswith(_END):
        return None
    middle = _end_of_ids(raw, begin.end())
    if not raw.startswith(_BETWEEN, middle):
        return None
    counts = _COUNTS.match(raw, _end_of_ids(raw, middle + len(_BETWEEN)))
    if counts is None or (status := _STATUSES.get(counts[3])) is None:
        return None
    return Head(begin[1].decode(), int(counts[1]), counts[2].decode(), status)


def _end_of_ids(raw: bytes, start: int) -> int:
    """Where the list of ids ends that starts there; the line's end when something else is in it."""
    end = raw.find(b"]", start)
    is_list = end >= 0 and raw.find(b'"', start, end) < 0
    return end if is_list else len(raw)


def _parse(raw: bytes) -> Head | None:
    value = parse_line(raw)
    if value is None:
        return None
    try:
        status = RecordStatus(value["status"])
        return Head(value["id"], value["completion_tokens"], value["finish_reason"], status)
    except (KeyError, ValueError):
        return None
