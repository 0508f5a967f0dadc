"""Reading a few records of an output folder without reading all of it."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from pydantic import ValidationError

from draftmill_api.record import Record
from draftmill_cli.errors import CliError

_PATTERN = "raw_responses*.jsonl"
_ZSTD = ".zst"
_BLOCK = 1 << 16


def record_files(folder: Path) -> dict[str, list[Path]]:
    """Files of records by dataset; `folder` is a run's output or one dataset's folder.

    Raises:
        CliError: There are none.
    """
    if not folder.is_dir():
        raise CliError(f"{folder} is no folder")
    own = _in(folder)
    if own:
        return {folder.name: own}
    found = {child.name: _in(child) for child in sorted(folder.iterdir()) if child.is_dir()}
    files = {name: parts for name, parts in found.items() if parts}
    if not files:
        raise CliError(f"no {_PATTERN} in {folder} or in a folder below it")
    return files


def spread(files: list[Path], count: int) -> list[Record]:
    """At most `count` records from places spread evenly over the files' bytes; a torn last line is no record.

    Raises:
        CliError: A line is no record.
    """
    sizes = [file.stat().st_size for file in files]
    chosen: dict[bytes, Record] = {}
    for index in range(count):
        file, offset = _place(files, sizes, sum(sizes) * (2 * index + 1) // (2 * count))
        line = _compressed_line_near(file, offset) if file.suffix == _ZSTD else _line_around(file, offset)
        if line:
            chosen[line] = _parsed(line, file)
    return list(chosen.values())


def _in(folder: Path) -> list[Path]:
    return sorted([*folder.glob(_PATTERN), *folder.glob(_PATTERN + _ZSTD)])


def _place(files: list[Path], sizes: list[int], offset: int) -> tuple[Path, int]:
    """The file and the byte in it of an offset into all files one after the other."""
    for file, size in zip(files[:-1], sizes[:-1], strict=True):
        if offset < size:
            return file, offset
        offset -= size
    return files[-1], offset


def _compressed_line_near(file: Path, offset: int) -> bytes:
    """The middle line of the first frame from an offset on; nothing without any."""
    try:
        from draftmill_jobs.shared.lines import whole_frame_from  # noqa: PLC0415 - bare files are read without
    except ModuleNotFoundError as error:
        raise CliError(f"{file} needs {error.name}: pip install 'draftmill[jobs]'") from error
    lines = whole_frame_from(file, offset).splitlines(keepends=True)
    return lines[len(lines) // 2] if lines else b""


def _line_around(file: Path, offset: int) -> bytes:
    """The line at an offset, or the one before when it is torn; nothing without any."""
    with file.open("rb") as handle:
        start = _line_start(handle, offset)
        line = _line_at(handle, start)
        if line and not line.endswith(b"\n"):
            start = _line_start(handle, start - 1) if start else 0
            line = _line_at(handle, start)
    return line if line.endswith(b"\n") else b""


def _line_at(handle: BinaryIO, start: int) -> bytes:
    handle.seek(start)
    return handle.readline()


def _line_start(handle: BinaryIO, offset: int) -> int:
    """Where the line begins that holds the byte at `offset`."""
    end = offset
    while end > 0:
        begin = max(0, end - _BLOCK)
        handle.seek(begin)
        newline = handle.read(end - begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end = begin
    return 0


def _parsed(line: bytes, file: Path) -> Record:
    try:
        return Record.model_validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "line"
        raise CliError(f"{file} holds a line that is no record ({where}: {first['msg']})") from error
