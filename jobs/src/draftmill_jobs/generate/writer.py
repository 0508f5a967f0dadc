"""The one writer: lines of all datasets, made durable in groups."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from draftmill_jobs.errors import JobError
from draftmill_jobs.shared.files import AppendOnlyFile
from draftmill_jobs.shared.lines import render_lines
from draftmill_jobs.shared.storage import ROOM_SECONDS, StorageFullError, write_failure
from draftmill_jobs.shared.tails import MOST_UNSYNCED

log = logging.getLogger(__name__)

GROUP_LINES = 64
GROUP_SECONDS = 0.5
_PENDING_BYTES = MOST_UNSYNCED // 2  # beyond this the disk is slower than the servers, and rows wait


@dataclass(frozen=True, slots=True)
class _Line:
    path: Path
    data: bytes
    written: Callable[[], None]


class Writer:
    """Appends lines; `written` of each is called once it will survive a crash.

    While the volume is full, lines wait in memory, and are tried again until there is room for them.
    """

    def __init__(self, hold: Callable[[bool], None]) -> None:
        """Begins with nothing.

        Args:
            hold: Told when the volume is full, so that nothing more is asked, and when there is room again.
        """
        self._hold = hold
        self._full = ""
        self._pending: list[_Line] = []
        self._pending_bytes = 0
        self._files: dict[Path, AppendOnlyFile] = {}
        self._arrived = asyncio.Event()
        self._enough = asyncio.Event()
        self._drained = asyncio.Event()
        self._drained.set()
        self._committing = asyncio.Lock()
        self._failure: JobError | None = None

    @property
    def full(self) -> str:
        """Why lines wait for room, in a sentence; empty while none does."""
        return self._full

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
            JobError: The disk does not take them.
        """
        while True:
            await self._arrived.wait()
            try:
                async with asyncio.timeout(GROUP_SECONDS):
                    await self._enough.wait()
            except TimeoutError:
                pass
            await self.flush()
            if self._full:
                await asyncio.sleep(ROOM_SECONDS)

    async def flush(self) -> None:
        """Writes what is pending, as far as there is room; goes on with that also when it is cancelled.

        Raises:
            JobError: The disk does not take it, or did not take lines before: after a failure there is no
                going on, whoever was told of it.
        """
        await asyncio.shield(asyncio.ensure_future(self._flush()))

    async def _flush(self) -> None:
        async with self._committing:
            if self._failure is not None:
                raise type(self._failure)(self._failure.reason, self._failure.message) from self._failure
            lines, self._pending, self._pending_bytes = self._pending, [], 0
            self._arrived.clear()
            self._enough.clear()
            outcome = await asyncio.to_thread(self._commit, lines) if lines else _Outcome([], [])
            self._put_back(outcome.left)
            for line in outcome.written:
                line.written()
            if isinstance(outcome.problem, JobError):
                self._failure = outcome.problem
                raise outcome.problem
            self._say(outcome.problem)

    async def until_written(self) -> None:
        """Waits until every line is durable, for however long the volume is full.

        Raises:
            JobError: The disk does not take them.
        """
        await self.flush()
        while self._full:
            await asyncio.sleep(ROOM_SECONDS)
            await self.flush()

    async def close(self) -> None:
        """Writes what is pending and closes the files.

        Lines for which there is no room are given up: their rows have no record, and are asked again.

        Raises:
            JobError: The disk does not take it, or did not take lines before.
        """
        try:
            await self.flush()
        finally:
            for file in self._files.values():
                file.close()
        if self._pending:
            log.warning("given up %d lines for which there is no room", len(self._pending))

    def _put_back(self, lines: list[_Line]) -> None:
        """Has lines wait that were not written, before those that have come meanwhile."""
        self._pending[:0] = lines
        self._pending_bytes += sum(len(line.data) for line in lines)
        if self._pending:
            self._arrived.set()
        if self._pending_bytes < _PENDING_BYTES:
            self._drained.set()

    def _say(self, problem: StorageFullError | None) -> None:
        was_full, self._full = bool(self._full), "" if problem is None else str(problem)
        if was_full != bool(self._full):
            self._hold(bool(self._full))
            log.warning("%s", self._full or "there is room again: going on")

    def _commit(self, lines: list[_Line]) -> _Outcome:
        """Makes the lines of one file after another durable; those of one are written together or not."""
        by_path: dict[Path, list[_Line]] = {}
        for line in lines:
            by_path.setdefault(line.path, []).append(line)
        outcome = _Outcome([], [])
        for path, group in by_path.items():
            data = render_lines(path, [line.data for line in group])
            try:
                file = self._files.get(path)
                if file is None:
                    file = self._files[path] = AppendOnlyFile(path)
                file.append(data)
                file.sync()
            except OSError as error:
                outcome.left.extend(group)
                outcome.add(write_failure(path, error, len(data)))
            else:
                outcome.written.extend(group)
        return outcome


@dataclass(slots=True)
class _Outcome:
    """What became of a group of lines.

    Attributes:
        left: Those that are not in their files.
        problem: Why; a failure rather than want of room.
    """

    written: list[_Line]
    left: list[_Line]
    problem: StorageFullError | JobError | None = None

    def add(self, problem: StorageFullError | JobError) -> None:
        """Takes in why lines of one file are left."""
        if not isinstance(self.problem, JobError):
            self.problem = problem
