"""What is on disk after a crash is the old file or the new one."""

from __future__ import annotations

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
