"""Lines in files that only grow: bare, or in zstd frames of some lines each.

What is written by one append is one frame, or several when it is large, each with a checksum of its own: so
frames can be appended after a crash, a torn one is known, and `zstd -d` reads the whole file all the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import zstandard

ZSTD_SUFFIX: Final = ".zst"

_LEVEL: Final = 3
_FRAME_BYTES: Final = 4 << 20  # of lines; a row that is read by itself costs its whole frame
_CHUNK: Final = 1 << 18  # bytes read at once
_MAGIC: Final = zstandard.FRAME_HEADER
_PLACE_BITS: Final = 20  # of a place: the line's number in its frame; the others are where the frame starts


class RawLine(NamedTuple):
    """A line as it stands in its file.

    Attributes:
        raw: With its newline, unless it is torn; of a torn frame, nothing.
        place: Where `read_line_at` finds it again.
        end: Bytes of the file that hold it and all lines before it.
    """

    raw: bytes
    place: int
    end: int


def render_lines(path: Path, lines: Sequence[bytes]) -> bytes:
    """What is appended to a file for these lines."""
    if path.suffix != ZSTD_SUFFIX:
        return b"".join(lines)
    compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
    return b"".join(compressor.compress(b"".join(group)) for group in _groups(lines))


def raw_lines(path: Path, seen: Callable[[bytes], object] = len) -> Iterator[RawLine]:
    """Every line of a file, torn ones among them.

    Args:
        path: The file; compressed if its name says so.
        seen: Takes the bytes of the file, all of them and in order.
    """
    with path.open("rb") as file:
        if path.suffix == ZSTD_SUFFIX:
            yield from _lines_of_frames(file, seen)
            return
        offset = 0
        for raw in file:
            seen(raw)
            start, offset = offset, offset + len(raw)
            yield RawLine(raw, start, offset)


def read_line_at(path: Path, place: int) -> bytes:
    """The line at a place that `raw_lines` gave; empty when there is none any longer."""
    with path.open("rb") as file:
        if path.suffix != ZSTD_SUFFIX:
            file.seek(place)
            return file.readline()
        file.seek(place >> _PLACE_BITS)
        frame = next(_frames(file), None)
    lines = BytesIO((frame.content if frame is not None else None) or b"")
    return next(islice(lines, place & ((1 << _PLACE_BITS) - 1), None), b"")


def whole_frame_from(path: Path, offset: int) -> bytes:
    """The lines of the first whole frame that starts at or behind a byte, else of the first of the file."""
    with path.open("rb") as file:
        for start in (offset, 0):
            file.seek(start)
            for frame in _frames(file):
                if frame.content is not None:
                    return frame.content
    return b""


class _Frame(NamedTuple):
    """A frame; its content is None when it is broken or torn."""

    content: bytes | None
    start: int
    end: int


def _groups(lines: Sequence[bytes]) -> Iterator[list[bytes]]:
    group: list[bytes] = []
    size = 0
    for line in lines:
        group.append(line)
        size += len(line)
        if size >= _FRAME_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _lines_of_frames(file: BinaryIO, seen: Callable[[bytes], object]) -> Iterator[RawLine]:
    for content, start, end in _frames(file, seen):
        place = start << _PLACE_BITS
        if content is None:
            yield RawLine(b"", place, end)
            continue
        for number, raw in enumerate(BytesIO(content)):
            yield RawLine(raw, place | number, end)


def _frames(file: BinaryIO, seen: Callable[[bytes], object] = len) -> Iterator[_Frame]:
    """Every frame from where the file stands; what lies before the next whole one is one broken frame."""
    reader = _FrameReader(file, seen)
    start = file.tell()
    while (frame := reader.frame_at(start)) is None or frame.end > start:
        if frame is None:
            frame = _Frame(None, start, reader.next_whole(start + 1))
        yield frame
        start = frame.end


class _FrameReader:
    """Decodes frames, as a rule one behind the other."""

    def __init__(self, file: BinaryIO, seen: Callable[[bytes], object]) -> None:
        self._file = file
        self._seen = seen
        self._told = file.tell()
        self._at, self._data = file.tell(), b""
        self._decompressor = zstandard.ZstdDecompressor()

    def frame_at(self, start: int) -> _Frame | None:
        """The frame that starts there; one without length at the end of the file; None when it is broken."""
        if start != self._at:
            self._file.seek(start)
            self._data = b""
        decoder, content, end = self._decompressor.decompressobj(), [], start
        data, self._at = self._data or self._read(), -1
        try:
            while data:
                content.append(decoder.decompress(data))
                end += len(data)
                if decoder.eof:
                    break
                data = self._read()
            else:
                if end > start:  # the file ends within the frame
                    return None
        except zstandard.ZstdError:
            return None
        self._data = decoder.unused_data
        self._at = end - len(self._data)
        return _Frame(b"".join(content), start, self._at)

    def next_whole(self, start: int) -> int:
        """Where the first whole frame at or behind a byte starts: the end of the file when there is none."""
        while (found := self._find_magic(start)) is not None:
            if self.frame_at(found) is not None:
                return found
            start = found + 1
        return self._file.seek(0, os.SEEK_END)

    def _find_magic(self, start: int) -> int | None:
        self._at = -1
        self._file.seek(start)
        data = b""
        while more := self._read():
            data = data[1 - len(_MAGIC) :] + more
            if (found := data.find(_MAGIC)) >= 0:
                return self._file.tell() - len(data) + found
        return None

    def _read(self) -> bytes:
        data = self._file.read(_CHUNK)
        if (new := self._file.tell() - self._told) > 0:
            self._seen(data[-new:])
            self._told += new
        return data
