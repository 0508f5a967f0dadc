"""The one writer: lines of all datasets, made durable in groups."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from draftmill_jobs.errors import JobFailedError
from draftmill_jobs.shared.files import AppendOnlyFile
from draftmill_jobs.shared.lines import render_lines
from draftmill_jobs.shared.tails import MOST_UNSYNCED

GROUP_LINES = 64
GROUP_SECONDS = 0.5
_PENDING_BYTES = MOST_UNSYNCED // 2  # beyond this the disk is slower than the servers, and rows wait


@dataclass(frozen=True, slots=True)
class _Line:
    path: Path
    data: bytes
    written: Callable[[], None]


class Writer:
    """Appends lines; `written` of each is called once it will survive a crash."""

    def __init__(self) -> None:
        self._pending: list[_Line] = []
        self._pending_bytes = 0
        self._files: dict[Path, AppendOnlyFile] = {}
        self._arrived = asyncio.Event()
        self._enough = asyncio.Event()
        self._drained = asyncio.Event()
        self._drained.set()
        self._committing = asyncio.Lock()
        self._failure: JobFailedError | None = None

    async def put(self, path: Path, data: bytes, written: Callable[[], None]) -> None:
        """Hands a line over; waits only when too much is pending."""
        await self._drained.wait()
        self._pending.append(_Line(path, data, written))
        self._pending_bytes += len(data)
        self._arrived.set()
        if len(self._pending) >= GROUP_LINES:
            self._enough.set()
        if self._pending_bytes >= _PENDING_BYTES:
            self._enough.set()
            self._drained.clear()

    async def run(self) -> None:
        """Writes group after group; never returns.

        Raises:
            JobFailedError: The disk does not take them.
        """
        while True:
            await self._arrived.wait()
            try:
                async with asyncio.timeout(GROUP_SECONDS):
                    await self._enough.wait()
            except TimeoutError:
                pass
            await asyncio.shield(asyncio.ensure_future(self.flush()))

    async def flush(self) -> None:
        """Writes what is pending.

        Raises:
            JobFailedError: The disk does not take it, or did not take lines before: after a failure there is
                no going on, whoever was told of it.
        """
        async with self._committing:
            if self._failure is not None:
                raise JobFailedError(self._failure.reason, self._failure.message) from self._failure
            lines, self._pending, self._pending_bytes = self._pending, [], 0
            self._arrived.clear()
            self._enough.clear()
            if lines:
                await self._commit_off_loop(lines)
            self._drained.set()
            for line in lines:
                line.written()

    async def close(self) -> None:
        """Writes what is pending and closes the files.

        Raises:
            JobFailedError: The disk does not take it, or did not take lines before.
        """
        try:
            await self.flush()
        finally:
            for file in self._files.values():
                file.close()

    async def _commit_off_loop(self, lines: list[_Line]) -> None:
        try:
            await asyncio.to_thread(self._commit, lines)
        except JobFailedError as error:
            self._failure = error
            raise

    def _commit(self, lines: list[_Line]) -> None:
        by_path: dict[Path, list[bytes]] = {}
        for line in lines:
            by_path.setdefault(line.path, []).append(line.data)
        try:
            for path, parts in by_path.items():
                file = self._files.get(path)
                if file is None:
                    file = self._files[path] = AppendOnlyFile(path)
                file.append(render_lines(path, parts))
            for path in by_path:
                self._files[path].sync()
        except OSError as error:
            raise JobFailedError(
                "StorageFailed", f"cannot write {error.filename or path}: {error}"
            ) from error
