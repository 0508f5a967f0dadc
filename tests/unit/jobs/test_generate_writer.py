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
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(AppendOnlyFile, "append", append)
    writer, written = Writer(lambda _: None), []
    running = asyncio.create_task(writer.run())
    await writer.put(tmp_path / "a.jsonl", b"{}\n", lambda: written.append(1))
    assert await asyncio.to_thread(writing.wait, 20)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert running.cancelled()
    cancelled.set()
    with pytest.raises(JobFailedError, match="Input/output error") as failed:
        await writer.close()
    assert failed.value.reason == "StorageFailed"
    assert written == []


async def test_a_line_is_told_of_as_written_when_it_was_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.jsonl"
    events = calls_of_the_disk(path, monkeypatch)
    writer = Writer(lambda _: None)
    await writer.put(path, b"{}\n", lambda: events.append("written"))
    await writer.flush()
    assert events == ["write", "fsync", "written"]
    await writer.close()


async def test_a_group_of_lines_is_synced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.jsonl"
    events = calls_of_the_disk(path, monkeypatch)
    writer = Writer(lambda _: None)
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
    writer, written = Writer(lambda _: None), []
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
    writer, written = Writer(lambda _: None), []
    await writer.put(tmp_path / "a.jsonl", b"{}\n", lambda: written.append(1))
    await writer.close()
    assert (tmp_path / "a.jsonl").read_bytes() == b"{}\n"
    assert written == [1]


class Disk:
    """A disk that does not take what is written, or what is synced, while it has an error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.of_write: int | None = None
        self.of_sync: int | None = None
        self._write, self._sync = os.write, os.fsync
        monkeypatch.setattr(os, "write", self.write)
        monkeypatch.setattr(os, "fsync", self.sync)

    def write(self, descriptor: int, data: bytes) -> int:
        if self.of_write is None or not self._is_file(descriptor):
            return self._write(descriptor, data)
        if len(data) > 1:
            return self._write(descriptor, data[: len(data) // 2])
        raise OSError(self.of_write, os.strerror(self.of_write))

    def sync(self, descriptor: int) -> None:
        if self.of_sync is not None and self._is_file(descriptor):
            raise OSError(self.of_sync, os.strerror(self.of_sync))
        self._sync(descriptor)

    def _is_file(self, descriptor: int) -> bool:
        return Path(f"/proc/self/fd/{descriptor}").readlink().suffix == ".jsonl"


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


LINE = b'{"n": 1}\n'


@pytest.mark.parametrize("call", ["of_write", "of_sync"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT])
async def test_without_room_lines_wait_and_nothing_half_written_stays(
    tmp_path: Path, disk: Disk, call: str, error: int
) -> None:
    holds, written = list[bool](), list[int]()
    writer, path = Writer(holds.append), tmp_path / "a.jsonl"
    await writer.put(path, LINE, lambda: written.append(1))
    await writer.flush()
    setattr(disk, call, error)
    for number in (2, 3):
        await writer.put(path, LINE, lambda number=number: written.append(number))  # type: ignore[misc]
        await writer.flush()
    assert (written, holds, path.read_bytes()) == ([1], [True], LINE)
    assert os.strerror(error) in writer.full
    assert f"{2 * len(LINE)} bytes wait" in writer.full
    setattr(disk, call, None)
    await writer.flush()
    assert (written, holds, path.read_bytes()) == ([1, 2, 3], [True, False], LINE * 3)
    assert writer.full == ""
    await writer.close()


async def test_one_full_file_does_not_hold_up_another(tmp_path: Path, disk: Disk) -> None:
    writer, written = Writer(lambda _: None), list[str]()
    for name in ("a.jsonl", "b.log"):
        await writer.put(tmp_path / name, LINE, lambda name=name: written.append(name))  # type: ignore[misc]
    disk.of_write = errno.ENOSPC
    await writer.flush()
    assert written == ["b.log"]
    disk.of_write = None
    await writer.close()
    assert written == ["b.log", "a.jsonl"]


@pytest.mark.parametrize("call", ["of_write", "of_sync"])
@pytest.mark.parametrize(
    ("error", "reason"), [(errno.EIO, "StorageFailed"), (errno.EROFS, "StorageNotWritable")]
)
async def test_a_broken_disk_ends_the_writer_and_what_was_durable_is_whole(
    tmp_path: Path, disk: Disk, call: str, error: int, reason: str
) -> None:
    writer, path, written = Writer(lambda _: None), tmp_path / "a.jsonl", list[int]()
    await writer.put(path, LINE, lambda: written.append(1))
    await writer.flush()
    setattr(disk, call, error)
    await writer.put(path, LINE, lambda: written.append(2))
    with pytest.raises(JobFailedError, match=f"a.jsonl: {os.strerror(error)}") as failed:
        await writer.flush()
    assert failed.value.reason == reason
    setattr(disk, call, None)
    with pytest.raises(JobFailedError):
        await writer.close()
    assert (written, path.read_bytes()) == ([1], LINE)


async def test_lines_that_find_no_room_at_the_end_are_given_up(tmp_path: Path, disk: Disk) -> None:
    writer, written = Writer(lambda _: None), list[int]()
    disk.of_write = errno.ENOSPC
    await writer.put(tmp_path / "a.jsonl", LINE, lambda: written.append(1))
    await writer.close()
    assert (written, (tmp_path / "a.jsonl").read_bytes()) == ([], b"")


async def test_lines_that_are_on_their_way_when_the_flush_is_cancelled_are_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    going, cancelled = threading.Event(), threading.Event()
    fsync = os.fsync

    def waits(descriptor: int) -> None:
        going.set()
        assert cancelled.wait(20)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", waits)
    writer, written = Writer(lambda _: None), list[int]()
    await writer.put(tmp_path / "a.jsonl", LINE, lambda: written.append(1))
    flushing = asyncio.create_task(writer.flush())
    assert await asyncio.to_thread(going.wait, 20)
    flushing.cancel()
    await asyncio.gather(flushing, return_exceptions=True)
    cancelled.set()
    await writer.close()
    assert (written, (tmp_path / "a.jsonl").read_bytes()) == ([1], LINE)
