"""What is on disk after a crash is the old file or the new one."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from draftmill_jobs.shared.files import AppendOnlyFile, write_atomically


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bytes]]:
    """What was synced, in order: its inode, and what the name `result` led to at that moment."""
    seen: list[tuple[int, bytes]] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        fsync(descriptor)
        seen.append((os.fstat(descriptor).st_ino, Path("result").read_bytes()))

    monkeypatch.setattr(os, "fsync", noted)
    return seen


def test_a_file_is_replaced_after_its_content_was_synced_and_the_name_is_synced_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, synced: list[tuple[int, bytes]]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "result"
    path.write_bytes(b"old")
    write_atomically(path, b"new")
    assert synced == [(path.stat().st_ino, b"old"), (tmp_path.stat().st_ino, b"new")]


def test_the_name_of_a_new_file_that_grows_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, synced: list[tuple[int, bytes]]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "result"
    AppendOnlyFile(path).close()
    assert synced == [(tmp_path.stat().st_ino, b"")]
    AppendOnlyFile(path).close()
    assert len(synced) == 1, "a name that was there is durable already"


def test_remains_that_could_not_be_removed_are_removed_before_the_next_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    file = AppendOnlyFile(tmp_path / "lines")
    file.append(b"one\n")
    file.sync()
    file.append(b"two\n")
    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", fails)
        broken.setattr(os, "ftruncate", fails)
        with pytest.raises(OSError, match="Input/output error"):
            file.sync()
    assert file.path.read_bytes() == b"one\ntwo\n"
    file.append(b"three\n")
    file.sync()
    file.close()
    assert file.path.read_bytes() == b"one\nthree\n"


def test_a_file_that_could_not_be_replaced_leaves_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "result"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"new")
    assert [each.name for each in tmp_path.iterdir()] == ["result"]
    assert path.read_bytes() == b"old"
