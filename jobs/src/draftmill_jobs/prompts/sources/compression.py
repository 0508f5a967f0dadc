"""Files as streams of bytes, compressed or not."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

import zstandard

from draftmill_jobs.prompts.sources.base import unreadable
from draftmill_jobs.shared.lines import ZSTD_SUFFIX

_GZIP_SUFFIX: Final = ".gz"

_CHUNK: Final = 1 << 15  # bytes unpacked at once: of repetitive text they become hundreds of times as many


def bare_name(path: Path) -> Path:
    """The path without the suffix of a compression."""
    return path.with_suffix("") if path.suffix in {_GZIP_SUFFIX, ZSTD_SUFFIX} else path


@contextmanager
def open_stream(path: Path) -> Iterator[BinaryIO]:
    """Opens a file to be read from its start, decompressed if its name says so.

    Raises:
        JobRefusedError: It cannot be opened, or turns out to be damaged while it is read.
    """
    try:
        with path.open("rb") as file:
            if path.suffix == _GZIP_SUFFIX:
                with gzip.GzipFile(fileobj=file) as stream:
                    yield stream  # type: ignore[misc]  # reads as one does
            elif path.suffix == ZSTD_SUFFIX:
                yield io.BufferedReader(_ZstdStream(file), _CHUNK)
            else:
                yield file
    except (EOFError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError) as error:
        raise unreadable(f"{path} is damaged or cut off: {error}") from error
    except OSError as error:
        raise unreadable(f"cannot read {path}: {error.strerror or error}") from error


class _ZstdStream(io.RawIOBase):
    """The content of zstd frames; the library's own reader takes half a frame for the end."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._decompressor = zstandard.ZstdDecompressor()
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._compressed = b""
        self._content = memoryview(b"")

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fills a part of the buffer; 0 at the end.

        Raises:
            EOFError: The file ends within a frame.
        """
        while not self._content:
            data = self._compressed or self._file.read(_CHUNK)
            if not data:
                if self._frame is not None:
                    raise EOFError("it ends within a frame")
                return 0
            frame = self._frame or self._decompressor.decompressobj()
            self._content = memoryview(frame.decompress(data))
            self._frame, self._compressed = (None, frame.unused_data) if frame.eof else (frame, b"")
        size = min(len(buffer), len(self._content))
        buffer[:size], self._content = self._content[:size], self._content[size:]
        return size
