"""Servers that fail, hang or go away meanwhile: taken out, probed, taken back, and no row is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator

import pytest

from draftmill_api.exitcode import ExitCode
from draftmill_api.progress import WorkerState
from draftmill_jobs.errors import JobFailedError
from draftmill_jobs.generate import breaker, gate, retry
from tests.support.engine_server import EngineServer, Fail, Reaction, Reply, Request, Stall
from tests.support.job import Job, prompts, unique, until
from tests.support.job_pages import progress_when
from tests.support.ports import free_port

BUSY = b'{"object":"error","message":"The request queue is full.","code":503}'


@pytest.fixture
async def other(job: Job) -> AsyncIterator[EngineServer]:
    async with EngineServer(job.model) as server:
        yield server


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_BASE", 0.02)
    monkeypatch.setattr(retry, "_CAP", 0.1)
    monkeypatch.setattr(gate, "_COOL_DOWN", 0.02)


async def test_a_server_that_only_fails_is_left_alone_and_taken_back_when_it_is_well(
    job: Job, server: EngineServer, other: EngineServer
) -> None:
    def fail(_: Request) -> Reaction:
        server.preflight = lambda _: Fail(500)
        return Fail(500)

    server.script, other.script = fail, lambda _: Reply(delay=0.02)
    job.datasets, job.generation = {"A": prompts(600)}, {"concurrency": 8, "retries": 1}
    async with job.use(server, other).generating() as task:
        await until(lambda: server.count >= breaker.TRIPS_AT and other.count > 200)
        failed = server.count
        assert failed < 60, "few more than trip it: those that failed while its health was looked at"
        server.script = lambda _: Reply(delay=0.02)
        server.preflight = lambda _: Reply()
        await until(lambda: server.count > failed + 20)
        code, progress = await task
    assert (code, progress.ok, progress.errors) == (ExitCode.DONE, 600, 0), "each went to the other server"
    assert progress.retried == failed
    unique(job.lines())


async def test_rows_in_flight_at_a_server_that_hangs_go_elsewhere_once(
    job: Job, server: EngineServer, other: EngineServer
) -> None:
    asked = 0

    def hang_later(_: Request) -> Reaction:
        nonlocal asked
        asked += 1
        return Reply(delay=0.4) if asked <= 4 else Stall()

    server.script = hang_later
    server.metrics = False
    other.script = lambda _: Reply(delay=0.05)
    job.datasets = {"A": prompts(200)}
    job.generation = {"concurrency": 8, "retries": 1, "stallTimeout": "1s"}
    port = free_port()
    async with job.use(server, other).generating(port) as task:
        await until(lambda: server.in_flight >= 4 and asked >= 8)
        server.health, server.preflight = 200, lambda _: Stall()
        await until(lambda: server.disconnects >= 4)
        await until(lambda: len(job.lines()) == 200, within=30)
        hung = server.disconnects
        code, progress = await task
    assert (code, progress.ok, progress.errors) == (ExitCode.DONE, 200, 0)
    assert 4 <= progress.retried <= hung, "each of them once"
    assert max(Counter(line["id"] for line in job.lines()).values()) == 1


async def test_a_server_that_is_lost_with_all_its_connections_and_comes_back_elsewhere_costs_nothing(
    job: Job, server: EngineServer, other: EngineServer
) -> None:
    """Public failure 18 (vllm-project/vllm#24885): SIGTERM of a server drops what is in flight.

    All sockets are cut in the middle of the run, and the server comes back later at another address.
    """
    server.script = other.script = lambda _: Reply(delay=0.05)
    job.datasets, job.generation = {"A": prompts(200)}, {"concurrency": 32, "retries": 0}
    port = free_port()
    async with job.use(server).generating(port) as task:
        await until(lambda: server.count > 60)
        server.stop()
        waiting = await progress_when(port, lambda seen: seen.state is WorkerState.WAITING)
        assert "s0: " in waiting.message
        job.use(other).write()
        code, progress = await task
    assert (code, progress.ok, progress.errors) == (ExitCode.DONE, 200, 0)
    assert 0 < progress.retried <= 3 * 32, "what was in flight, and what went before it showed"
    unique(job.lines())


@pytest.mark.parametrize("says", ["is gone", "refuses everything"])
async def test_a_worker_whose_servers_stay_away_ends_in_bounded_time_and_says_so(
    job: Job, server: EngineServer, says: str
) -> None:
    """Public failure 34 (vllm-project/speculators#412): with its server gone for good, a job hangs."""
    server.script = lambda _: Reply(delay=0.02)
    job.datasets = {"A": prompts(100)}
    job.generation = {"retries": 0, "outageTimeout": "1s", "errorPolicy": {"pausePercent": 100}}
    async with job.use(server).generating() as task:
        await until(lambda: server.count > 20)
        if says == "is gone":
            server.stop()
        else:
            server.script = server.preflight = lambda _: Fail(503, BUSY)
        with pytest.raises(JobFailedError, match=r"no server could be used for 1s .*s0: ") as failed:
            await task
    assert (failed.value.reason, failed.value.exit_code) == ("ServersUnreachable", ExitCode.FAILED)
    assert job.lines("dead_letter") == []
    server.script = server.preflight = lambda _: Reply()
    if says == "is gone":
        await server.start()
    _, progress = await job.generate()
    assert (progress.ok, len(unique(job.lines()))) == (100, 100), "and nothing is lost"


async def test_a_server_that_refuses_every_row_for_ever_is_not_asked_for_ever(
    job: Job, server: EngineServer
) -> None:
    """Public failure 4 (volcengine/OpenViking#1856): retries inside retries ask a server 3 x 3 times.

    There is one layer of retries. Refusals for lack of room cost a row no try, but only so many times.
    """
    server.script = lambda _: Fail(503, BUSY)
    job.datasets = {"A": prompts(6)}
    job.generation = {"concurrency": 3, "retries": 2, "errorPolicy": {"pausePercent": 100}}
    _, progress = await job.use(server).generate()
    assert (progress.ok, progress.errors) == (0, 6)
    assert set(server.by_prompt.values()) == {16 + 3}
    assert {letter["tries"] for letter in job.lines("dead_letter")} == {16 + 3}
