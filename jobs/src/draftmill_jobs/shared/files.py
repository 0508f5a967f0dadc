"""Writing files so that a crash leaves the old one or the new one, never half of one."""

from __future__ import annotations

import hashlib
import os
import sys
from contextlib import suppress
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def begin_write_back(descriptor: int, start: int, end: int) -> None:
    """Has the system begin to write a file's bytes `[start, end)`, and drop its copy of those it has written.

    Only a hint: nothing is durable for it. Without it the disk idles until somebody waits for it, and the
    files that are written push all others out of the memory.
    """
    if sys.platform == "linux" and end > start:
        os.posix_fadvise(descriptor, start, end - start, os.POSIX_FADV_DONTNEED)


def write_atomically(path: Path, content: bytes) -> None:
    """Replaces the file by one with this content, durably."""
    _temporary(path, content).replace(path)
    sync_folder(path.parent)


def create_atomically(path: Path, content: bytes) -> bool:
    """Makes a file with this content, durably; False when there is one already, which stays as it is."""
    temporary = _temporary(path, content)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
    sync_folder(path.parent)
    return True


def sha256_of(path: Path) -> str:
    """The hash of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _temporary(path: Path, content: bytes) -> Path:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


class AppendOnlyFile:
    """A file that only grows by whole appends: what fails, or cannot be made durable, is taken back."""

    def __init__(self, path: Path) -> None:
        is_new = not path.exists()
        self.path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._size = self._synced = os.fstat(self._descriptor).st_size
        self._has_remains = False  # of an append that failed, behind `_size`
        if is_new:
            sync_folder(path.parent)

    def append(self, data: bytes) -> None:
        """Writes all of `data`, not yet durably.

        Raises:
            OSError: The disk is full or broken; the file is as it was before, at the next append at last.
        """
        self._remove_remains()
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            self._cut_back(self._size)
            raise
        self._size += len(data)

    def sync(self) -> None:
        """Makes what was appended durable.

        Raises:
            OSError: The disk does not take it. Which part of it the disk has is unknown then, and a second
                sync would not tell: so the file is as it was when it was last durable.
        """
        try:
            os.fsync(self._descriptor)
        except OSError:
            self._cut_back(self._synced)
            raise
        self._synced = self._size

    def close(self) -> None:
        """Closes the file."""
        os.close(self._descriptor)

    def _cut_back(self, size: int) -> None:
        self._size, self._has_remains = size, True
        with suppress(OSError):  # of what failed before, the caller tells
            self._remove_remains()

    def _remove_remains(self) -> None:
        if self._has_remains:
            os.ftruncate(self._descriptor, self._size)
            self._has_remains = False
