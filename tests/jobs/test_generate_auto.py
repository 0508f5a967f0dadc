"""`concurrency: Auto` against a server that gets no faster beyond some requests at once."""

from __future__ import annotations

import pytest

from draftmill_api.v1alpha1.status import ChosenConcurrency
from draftmill_jobs.generate import gate, keeper, knee, tuning
from draftmill_jobs.shared.chosen_concurrency import read_chosen
from tests.support.engine_server import EngineServer, Fail, Reaction, Reply, Request
from tests.support.job import Job, prompts, until
from tests.support.job_pages import in_force, progress_when
from tests.support.ports import free_port

KNEE = 16


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks of tests: the proportions are those of real ones."""
    monkeypatch.setattr(knee, "_SETTLE", 0.3)
    monkeypatch.setattr(tuning, "_LOOK", 0.1)
    monkeypatch.setattr(keeper, "_LONGEST_LOOK", 0.1)
    monkeypatch.setattr(gate, "_COOL_DOWN", 0.02)


async def settled(port: int) -> ChosenConcurrency:
    """What it has found, as soon as it has."""
    seen = await progress_when(
        port, lambda seen: seen.progress.concurrency is not None and seen.progress.concurrency.settled
    )
    assert seen.progress.errors == 0
    assert seen.progress.concurrency is not None
    return seen.progress.concurrency


async def test_the_knee_is_found_told_and_left_for_a_number_that_is_given(
    job: Job, server: EngineServer
) -> None:
    def script(_: Request) -> Reaction:
        return Reply(delay=0.05 * max(1.0, server.in_flight / KNEE))

    server.script = script
    job.datasets, job.generation = {"A": prompts(20_000)}, {"concurrency": "Auto"}
    port = free_port()
    async with job.use(server).generating(port):
        chosen = await settled(port)
        assert 12 <= chosen.in_force <= 40
        assert "tokens/s" in chosen.reason
        await until(lambda: read_chosen(job.output) == chosen)
        job.generation = {"concurrency": 3}
        await in_force(job, port)
        await progress_when(port, lambda seen: seen.progress.in_flight == 3)
        await progress_when(port, lambda seen: seen.progress.concurrency is None)


async def test_it_settles_too_where_the_server_refuses_what_goes_beyond_its_queue(
    job: Job, server: EngineServer
) -> None:
    server.script = lambda _: Reply(delay=0.05) if server.in_flight <= 15 else Fail(503)
    job.datasets, job.generation = {"A": prompts(20_000)}, {"concurrency": "Auto", "retries": 0}
    port = free_port()
    async with job.use(server).generating(port):
        chosen = await settled(port)
    assert 8 <= chosen.in_force <= 15
    assert "the servers refused requests 3 times while 18 were to be in flight" in chosen.reason
