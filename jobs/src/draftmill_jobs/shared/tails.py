"""What a crash leaves behind the last whole line of a file: found from the file's end, and cut off.

A killed process leaves half a line. A power cut leaves what the disk had of a group that was not synced yet:
nothing, a part, zeros, or whole lines behind zeros, for blocks are written in any order.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final

from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.shared.lines import ZSTD_SUFFIX, raw_lines

MOST_UNSYNCED: Final = 128 << 20
"""Bytes that a file can have behind what was synced: a writer syncs before it has taken half as many."""

_BLOCK: Final = 1 << 20
_HOLE: Final = bytes(512)  # of zeros; shorter runs are in compressed data too


def cut_torn_tail(path: Path, is_whole: Callable[[bytes], bool]) -> int:
    """Cuts off, durably, what a crash left behind the last whole line; returns how many bytes that were.

    Args:
        path: A file to which lines were appended.
        is_whole: Whether a line is one of the writer's, with its end.

    Raises:
        JobRefusedError: More would be cut off than a crash can leave: the file is not the writer's.
    """
    size = path.stat().st_size
    find = _end_of_frames if path.suffix == ZSTD_SUFFIX else _end_of_lines
    end = find(path, size, is_whole) if size else 0
    if size - end > MOST_UNSYNCED:
        raise JobRefusedError(
            "OutputCorrupt",
            f"{path}: the last {size - end} bytes hold no whole record, which no crash leaves; "
            "something other than Draftmill wrote them: restore the file or move it away",
        )
    if end < size:
        with path.open("r+b") as file:
            file.truncate(end)
            os.fsync(file.fileno())
    return size - end


def _end_of_lines(path: Path, size: int, is_whole: Callable[[bytes], bool]) -> int:
    with path.open("rb") as file:
        end = _line_start(file, _first_zero(file, max(0, size - MOST_UNSYNCED), size))
        while end > 0 and size - end <= MOST_UNSYNCED:
            start = _line_start(file, end - 1)
            file.seek(start)
            if is_whole(file.read(end - start)):
                return end
            end = start
    return end


def _first_zero(file: BinaryIO, start: int, end: int) -> int:
    """Where the first zero byte is, which no line has; `end` when there is none."""
    file.seek(start)
    while block := file.read(_BLOCK):
        if (found := block.find(b"\0")) >= 0:
            return file.tell() - len(block) + found
    return end


def _line_start(file: BinaryIO, offset: int) -> int:
    """Where the line starts that holds the byte at an offset, or would."""
    while offset > 0:
        begin = max(0, offset - _BLOCK)
        file.seek(begin)
        if (newline := file.read(offset - begin).rfind(b"\n")) >= 0:
            return begin + newline + 1
        offset = begin
    return 0


def _end_of_frames(path: Path, size: int, is_whole: Callable[[bytes], bool]) -> int:
    end = before = 0
    for line in raw_lines(path):
        if is_whole(line.raw):
            end = line.end
        elif size - end <= MOST_UNSYNCED and _has_hole(path, before, line.end):
            return end
        before = line.end
    return end


def _has_hole(path: Path, start: int, end: int) -> bool:
    """Whether a sector that the disk never had is among these bytes."""
    with path.open("rb") as file:
        file.seek(start)
        return _HOLE in file.read(end - start)
