"""What a job serves while it runs, as the operator and Prometheus see it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aiohttp

from draftmill_api.jobconfig import SynthJobConfig
from draftmill_api.progress import Progress
from draftmill_jobs.shared.config import load
from tests.support.job import Job


async def get(port: int, path: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as response:
        return await response.text()


async def progress_when(port: int, condition: Callable[[Progress], bool], within: float = 60.0) -> Progress:
    """Looks at `/progress` until it is as wanted, with a deadline."""
    async with asyncio.timeout(within):
        while True:
            try:
                seen = Progress.model_validate_json(await get(port, "/progress"))
            except aiohttp.ClientConnectorError:
                pass
            else:
                if condition(seen):
                    return seen
            await asyncio.sleep(0.05)


async def in_force(job: Job, port: int) -> None:
    """Writes the config, and waits until the worker works with it."""
    written = load(job.write(), SynthJobConfig).hash
    await progress_when(port, lambda seen: seen.config_hash == written, within=10.0)
