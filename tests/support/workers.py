"""Several workers of one job in this process."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.job import Ended, Job


class Workers:
    """Starts workers of one job in this process."""

    def __init__(self, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
        self._job = job
        self._monkeypatch = monkeypatch

    async def start(self, index: int, count: int) -> asyncio.Task[Ended]:
        self._monkeypatch.setenv("DRAFTMILL_WORKER", f"{index}/{count}")
        task = asyncio.create_task(self._job.generate())
        await asyncio.sleep(0)  # its share is the first thing that it reads
        return task

    async def all(self, count: int) -> list[Ended]:
        """Starts so many at once and waits for all of them."""
        return await asyncio.gather(*[await self.start(index, count) for index in range(count)])
