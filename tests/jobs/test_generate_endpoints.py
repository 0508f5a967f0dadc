"""Endpoints that change in the config while rows are asked: no row is lost, spent or buried for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from draftmill_api.exitcode import ExitCode
from draftmill_api.progress import WorkerState
from draftmill_api.v1alpha1.shared import Endpoint as EndpointSpec
from draftmill_api.v1alpha1.shared import Engine
from draftmill_jobs.engines.base import Ask
from draftmill_jobs.engines.client import open_session
from draftmill_jobs.engines.failures import FailureKind, RequestFailedError
from draftmill_jobs.engines.vllm import VllmChat
from draftmill_jobs.generate.endpoints import Endpoint, EndpointPool, EndpointState
from draftmill_jobs.generate.life import Life
from tests.support.engine_server import EngineServer, Fail, Hold, Reply, Stall
from tests.support.job import Job, prompts, unique, until
from tests.support.job_pages import progress_when
from tests.support.ports import free_port

CONCURRENCY = 4


@pytest.fixture
async def other(job: Job) -> AsyncIterator[EngineServer]:
    async with EngineServer(job.model) as server:
        yield server


@pytest.fixture
def held(job: Job, server: EngineServer) -> Job:
    """Twenty rows of which the server holds the first few."""
    server.script = lambda _: Hold()
    job.generation = {"concurrency": CONCURRENCY, "retries": 0, "connectTimeout": "30s"}
    return job.use(server)


async def moved(job: Job, port: int, *servers: EngineServer, engine: str = "VLLM") -> None:
    """Writes other endpoints into the config, and waits until it is in force."""
    before = await progress_when(port, lambda _: True)
    job.use(*servers, engine=engine).write()
    await progress_when(port, lambda seen: seen.config_hash != before.config_hash)


async def test_answers_of_an_endpoint_that_was_taken_out_are_kept(
    held: Job, server: EngineServer, other: EngineServer
) -> None:
    port = free_port()
    async with held.generating(port) as task:
        await until(lambda: server.in_flight == CONCURRENCY)
        await moved(held, port, other)
        seen = await progress_when(port, lambda seen: seen.state is WorkerState.PREFLIGHT)
        assert seen.progress.in_flight == CONCURRENCY, "they hold the places of others, and of probes"
        server.script = lambda _: Reply()
        server.let_go()
        code, progress = await task
    assert (code, progress.ok, progress.retried) == (ExitCode.DONE, 20, 0)
    assert (server.count, other.count) == (CONCURRENCY, 20 - CONCURRENCY)
    unique(held.lines())


@pytest.mark.parametrize("status", [400, 401, 404, 500])
async def test_whatever_a_corrected_address_said_last_is_nothing_against_the_rows(
    held: Job, server: EngineServer, other: EngineServer, status: int
) -> None:
    port = free_port()
    async with held.generating(port) as task:
        await until(lambda: server.in_flight == CONCURRENCY)
        await moved(held, port, other)
        server.let_go(Fail(status))
        code, progress = await task
    assert (code, progress.ok, progress.errors) == (ExitCode.DONE, 20, 0)
    assert other.count == 20


@pytest.mark.parametrize("metrics", [True, False])
async def test_a_server_that_hangs_is_given_up_after_it_was_taken_out(
    held: Job, server: EngineServer, other: EngineServer, *, metrics: bool
) -> None:
    server.script, server.metrics = lambda _: Stall(), metrics
    held.generation["stallTimeout"] = "3s"
    port = free_port()
    async with held.generating(port) as task:
        await until(lambda: server.in_flight == CONCURRENCY)
        await moved(held, port, other)
        assert server.in_flight == CONCURRENCY
        code, progress = await task
    assert (code, progress.ok, other.count) == (ExitCode.DONE, 20, 20)


async def test_a_name_may_get_another_engine(held: Job, server: EngineServer) -> None:
    port = free_port()
    async with held.generating(port) as task:
        await until(lambda: server.in_flight == CONCURRENCY)
        server.script = lambda _: Reply(delay=0.01)
        await moved(held, port, server, engine="SGLang")
        server.let_go()
        code, progress = await task
    assert (code, progress.ok, server.count) == (ExitCode.DONE, 20, 20)
    assert {request.path for request in server.requests} == {"/v1/chat/completions", "/generate"}


async def test_one_is_added_to_those_that_are_there(
    held: Job, server: EngineServer, other: EngineServer
) -> None:
    held.datasets = {"A": prompts(300)}
    port = free_port()
    async with held.generating(port) as task:
        await until(lambda: server.in_flight == CONCURRENCY)
        server.script = lambda _: Reply(delay=0.1)
        held.generation["concurrency"] = 2 * CONCURRENCY
        await moved(held, port, server, other)
        await until(lambda: other.count > 0)
        server.let_go()
        code, progress = await task
    assert (code, progress.ok, progress.retried) == (ExitCode.DONE, 300, 0)


async def test_without_any_endpoint_the_worker_waits_for_the_next(
    held: Job, server: EngineServer, other: EngineServer
) -> None:
    port = free_port()
    async with held.generating(port) as task:
        await until(lambda: server.in_flight == CONCURRENCY)
        await moved(held, port)
        seen = await progress_when(port, lambda seen: seen.state is WorkerState.WAITING)
        assert seen.message == "waiting for endpoints: the config names none yet"
        server.stop()
        held.use(other).write()  # so fast that nobody need see it in force
        code, progress = await task
    assert (code, progress.ok, progress.errors, other.count) == (ExitCode.DONE, 20, 0, 20)


async def test_endpoints_that_come_and_go_all_the_time_cost_nothing(
    job: Job, server: EngineServer, other: EngineServer
) -> None:
    server.script = other.script = lambda _: Reply(delay=0.05)
    job.datasets, job.generation = {"A": prompts(800)}, {"concurrency": 6}
    job.generation |= {"retries": 0, "connectTimeout": "30s"}
    port = free_port()
    async with job.use(server).generating(port) as task:
        await until(lambda: server.count > 0)
        for servers in ((other,), (server, other), (server,), (other, server)):
            move = asyncio.create_task(moved(job, port, *servers))
            await asyncio.wait({task, move}, return_when=asyncio.FIRST_COMPLETED)
            move.cancel()
        code, progress = await task
    assert other.count > 0
    assert (code, progress.ok, progress.errors) == (ExitCode.DONE, 800, 0)
    assert len(unique(job.lines())) == 800


async def test_a_request_that_comes_too_late_is_not_sent_to_a_removed_endpoint(server: EngineServer) -> None:
    async with open_session() as session:
        pool = EndpointPool(session, asyncio.get_running_loop().time, lambda: 2.0)
        spec = EndpointSpec(name="s0", url=server.url, engine=Engine.VLLM)
        endpoint = Endpoint(spec, VllmChat(), Life(last_sign=0.0))
        pool.add(endpoint)
        pool.mark(endpoint, EndpointState.UP)
        pool.remove("s0")
        with pytest.raises(RequestFailedError, match="s0 was taken out of the config") as failed:
            await pool.ask(endpoint, Ask("r", "m", [], None, {}, [1], {}))
        assert failed.value.kind is FailureKind.CONNECTION_LOST
        assert await pool.is_lost(endpoint), "so it costs the row no try"
        assert server.count == 0
