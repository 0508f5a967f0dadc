"""The writer tells of every line what the disk has done with it, and of nothing before."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from draftmill_jobs.errors import JobFailedError
from draftmill_jobs.generate.writer import GROUP_LINES, Writer
from draftmill_jobs.shared.files import AppendOnlyFile
from tests.support.job import until


async def test_a_write_that_fails_after_its_task_was_cancelled_is_told_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing, cancelled = threading.Event(), threading.Event()

    def append(_: AppendOnlyFile, data: bytes) -> None:
        writing.set()
        assert cancelled.wait(20)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(AppendOnlyFile, "append", append)
    writer, written = Writer(), []
    running = asyncio.create_task(writer.run())
    await writer.put(tmp_path / "a.jsonl", b"{}\n", lambda: written.append(1))
    assert await asyncio.to_thread(writing.wait, 20)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert running.cancelled()
    cancelled.set()
    with pytest.raises(JobFailedError, match="No space left on device") as failed:
        await writer.close()
    assert failed.value.reason == "StorageFailed"
    assert written == []


async def test_a_line_is_told_of_as_written_when_it_was_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.jsonl"
    events = calls_of_the_disk(path, monkeypatch)
    writer = Writer()
    await writer.put(path, b"{}\n", lambda: events.append("written"))
    await writer.flush()
    assert events == ["write", "fsync", "written"]
    await writer.close()


async def test_a_group_of_lines_is_synced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.jsonl"
    events = calls_of_the_disk(path, monkeypatch)
    writer = Writer()
    for _ in range(GROUP_LINES):
        await writer.put(path, b"{}\n", lambda: events.append("written"))
    running = asyncio.create_task(writer.run())
    await until(lambda: events.count("written") == GROUP_LINES)
    running.cancel()
    assert GROUP_LINES == 64
    assert events == ["write", "fsync", *["written"] * GROUP_LINES]
    await writer.close()


async def test_a_line_that_was_not_synced_is_not_told_of_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fsync(_: AppendOnlyFile) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(AppendOnlyFile, "sync", fsync)
    writer, written = Writer(), []
    await writer.put(tmp_path / "a.jsonl", b"{}\n", lambda: written.append(1))
    with pytest.raises(JobFailedError, match="Input/output error"):
        await writer.close()
    assert written == []


def calls_of_the_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the disk is asked to do with a file, in order, as it happens."""
    path.touch()
    events: list[str] = []
    inode = path.stat().st_ino

    def note(name: str, call: Callable[..., Any]) -> None:
        def noted(descriptor: int, *arguments: Any) -> Any:
            result = call(descriptor, *arguments)
            if os.fstat(descriptor).st_ino == inode:
                events.append(name)
            return result

        monkeypatch.setattr(os, name, noted)

    note("write", os.write)
    note("fsync", os.fsync)
    return events


async def test_what_is_pending_at_the_end_is_written(tmp_path: Path) -> None:
    writer, written = Writer(), []
    await writer.put(tmp_path / "a.jsonl", b"{}\n", lambda: written.append(1))
    await writer.close()
    assert (tmp_path / "a.jsonl").read_bytes() == b"{}\n"
    assert written == [1]
