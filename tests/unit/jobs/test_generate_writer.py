"""The writer tells of every line that the disk did not take."""

from __future__ import annotations

import asyncio
import errno
import threading
from pathlib import Path

import pytest

from draftmill_jobs.errors import JobFailedError
from draftmill_jobs.generate.writer import Writer
from draftmill_jobs.shared.files import AppendOnlyFile


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


async def test_what_is_pending_at_the_end_is_written(tmp_path: Path) -> None:
    writer, written = Writer(), []
    await writer.put(tmp_path / "a.jsonl", b"{}\n", lambda: written.append(1))
    await writer.close()
    assert (tmp_path / "a.jsonl").read_bytes() == b"{}\n"
    assert written == [1]
