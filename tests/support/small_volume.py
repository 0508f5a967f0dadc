"""A small volume of its own, that can be full: a tmpfs, which needs root."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class SmallVolume:
    """Where it is mounted."""

    folder: Path

    @property
    def free(self) -> int:
        """Bytes."""
        found = os.statvfs(self.folder)
        return found.f_bavail * found.f_frsize

    def fill(self, leave: int = 0) -> None:
        """Takes all its room but so many bytes."""
        with (self.folder / "ballast").open("wb") as file:
            file.write(bytes(max(0, self.free - leave)))

    def make_room(self) -> None:
        """Gives back what `fill` took."""
        (self.folder / "ballast").unlink()

    def make_read_only(self) -> None:
        """Nothing more can be opened for writing, or made."""
        _run("mount", "-o", "remount,ro", str(self.folder))


@contextmanager
def small_volume(folder: Path, size: int) -> Iterator[SmallVolume]:
    """Mounts one of so many bytes, and takes it away at the end."""
    if os.geteuid() != 0:
        pytest.skip("a volume is mounted by root alone")
    folder.mkdir(parents=True)
    _run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder))
    try:
        yield SmallVolume(folder)
    finally:
        _run("umount", "--lazy", str(folder))


@contextmanager
def read_only(path: Path) -> Iterator[None]:
    """A file or folder can be read and not written, not by root either."""
    if os.geteuid() != 0:
        pytest.skip("what root cannot write is mounted so by root alone")
    _run("mount", "--bind", str(path), str(path))
    try:
        _run("mount", "-o", "remount,bind,ro", str(path))
        yield
    finally:
        _run("umount", "--lazy", str(path))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
