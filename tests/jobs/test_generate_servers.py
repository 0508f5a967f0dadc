"""Several servers, and servers that refuse: each gets what it takes, and no row is lost for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from draftmill_api.exitcode import ExitCode
from draftmill_jobs.generate import gate, retry
from tests.support.engine_server import EngineServer, Fail, Hold, Reaction, Reply, Request
from tests.support.job import Job, prompts, unique, until
from tests.support.job_pages import in_force
from tests.support.ports import free_port

BUSY = b'{"error":{"message":"The request queue is full.","type":"ServiceUnavailable","code":503}}'


@pytest.fixture
async def other(job: Job) -> AsyncIterator[EngineServer]:
    async with EngineServer(job.model) as server:
        yield server


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Backoff and cool-down of tests: the proportions are those of real ones."""
    monkeypatch.setattr(retry, "_BASE", 0.02)
    monkeypatch.setattr(gate, "_COOL_DOWN", 0.02)


async def test_each_server_has_its_cap_and_no_more(
    job: Job, server: EngineServer, other: EngineServer
) -> None:
    server.script = other.script = lambda _: Hold()
    job.datasets, job.generation = {"A": prompts(40)}, {"concurrency": 16}
    job.endpoint_fields = {"s0": {"concurrency": 3}, "s1": {"concurrency": 13}}
    port = free_port()
    async with job.use(server, other).generating(port) as task:
        await until(lambda: (server.in_flight, other.in_flight) == (3, 13))
        job.endpoint_fields = {"s0": {"concurrency": 5}, "s1": {"concurrency": 4}}
        await in_force(job, port)
        other.let_go()
        await until(lambda: (server.in_flight, other.in_flight) == (5, 4))
        server.script = other.script = lambda _: Reply()
        server.let_go()
        other.let_go()
        _, progress = await task
    assert (progress.ok, progress.retried) == (40, 0)
    assert (server.most_in_flight, other.most_in_flight) == (5, 13)


@pytest.mark.usefixtures("quick")
async def test_a_server_that_takes_fewer_than_the_cap_gets_what_it_takes_and_no_row_is_lost(
    job: Job, server: EngineServer
) -> None:
    refused = 0

    def script(_: Request) -> Reaction:
        nonlocal refused
        if server.in_flight <= 8:
            return Reply(delay=0.02)
        refused += 1
        return Fail(503, BUSY)

    server.script = script
    job.datasets, job.generation = {"A": prompts(600)}, {"concurrency": 64, "retries": 0}
    code, progress = await job.use(server).generate()
    assert (code, progress.ok, progress.errors) == (ExitCode.DONE, 600, 0)
    assert progress.retried == refused
    assert refused < 200, "a client that does not adapt would be refused again and again"
    unique(job.lines())


async def test_what_one_server_refuses_another_takes_and_the_first_is_spared_as_long_as_it_asks(
    job: Job, server: EngineServer, other: EngineServer
) -> None:
    refused: list[float] = []
    later: list[float] = []

    def script(_: Request) -> Reaction:
        now = asyncio.get_running_loop().time()
        if not refused or now < refused[0] + 0.5:
            refused.append(now)
            return Fail(429, BUSY, headers=("Retry-After: 1",))
        later.append(now)
        return Reply()

    server.script = script
    other.script = lambda _: Reply(delay=0.02)
    job.datasets, job.generation = {"A": prompts(400)}, {"concurrency": 4, "retries": 0}
    _, progress = await job.use(server, other).generate()
    assert (progress.ok, progress.errors, progress.retried) == (400, 0, len(refused))
    assert len(refused) <= 4, "those of one moment"
    assert later[0] - refused[-1] >= 1.0
    assert other.count > 0


async def test_no_more_requests_are_sent_in_a_minute_than_may_be_and_other_limits_are_in_force_at_once(
    job: Job, server: EngineServer
) -> None:
    asked: list[float] = []

    def script(_: Request) -> Reaction:
        asked.append(asyncio.get_running_loop().time())
        return Reply()

    server.script = script
    job.datasets, job.generation = {"A": prompts(200)}, {"requestsPerMinute": 600}
    async with job.use(server).generating() as task:
        await until(lambda: len(asked) >= 20)
        assert len(asked) <= 1 + 10 * (1 + asked[-1] - asked[0])
        job.generation = {"tokensPerMinute": 60_000_000}
        job.write()
        _, progress = await task
    assert progress.ok == 200
    assert asked[-1] - asked[0] < 10, "two hundred would take twenty seconds"


async def test_the_wait_for_a_place_is_no_time_of_the_request_and_no_failure(
    job: Job, server: EngineServer
) -> None:
    """Public failure 29 (NVIDIA-NeMo/DataDesigner#551): a limit on that wait fails healthy models."""
    server.script = lambda _: Reply(delay=0.3)
    job.datasets = {"A": prompts(8)}
    job.generation = {"concurrency": 1, "retries": 0, "stallTimeout": "1s"}
    _, progress = await job.use(server).generate()
    assert (progress.ok, progress.retried, progress.errors) == (8, 0, 0)
    assert all(line["latency_s"] < 0.9 for line in job.lines()), (
        "the last one waited for more than two seconds"
    )
