"""A worker whose rows fail too often: it holds back what is left, and goes on when it is told to."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

import pytest

from draftmill_api.exitcode import ExitCode
from draftmill_api.progress import Progress, WorkerState
from draftmill_jobs.errors import JobPausedError
from draftmill_jobs.generate import retry
from draftmill_jobs.generate.guard import WhenPaused
from tests.support.engine_server import EngineServer, Fail, Reaction, Reply, Request
from tests.support.forked import ForkedProgram
from tests.support.job import Job, prompts, unique, until
from tests.support.job_pages import progress_when
from tests.support.ports import free_port

POLICY = {"warnPercent": 0, "pausePercent": 20, "window": 10}
CONCURRENCY = 4
TRIPS_AT = 3  # failed rows


@pytest.fixture(autouse=True)
def short_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_BASE", 0.02)
    monkeypatch.setattr(retry, "_CAP", 0.1)


@pytest.fixture
def failing(job: Job, server: EngineServer) -> Job:
    """Forty rows, each of which the server refuses."""
    server.script = lambda _: Fail(400, delay=0.02)
    job.datasets, job.generation = {"A": prompts(40)}, {"concurrency": CONCURRENCY, "errorPolicy": POLICY}
    return job.use(server)


def at_rest(
    server: EngineServer, *, between_tries: int = 0, forgotten: int = 0
) -> Callable[[Progress], bool]:
    """Paused, with everything that was asked settled on disk but the rows between two tries.

    Failed rows are all in the window but those that were forgotten.
    """

    def look(seen: Progress) -> bool:
        settled = seen.progress.done + seen.progress.errors
        is_quiet = seen.progress.in_flight == 0 and server.in_flight == 0
        is_settled = settled + between_tries == server.count
        is_counted = seen.recent_errors + forgotten == seen.progress.errors
        return seen.state is WorkerState.PAUSED and is_quiet and is_settled and is_counted

    return look


async def put_in_force(job: Job, port: int) -> Progress:
    """Writes the config anew, and waits until the worker says that it has it."""
    before = await progress_when(port, lambda _: True)
    job.write()
    return await progress_when(port, lambda seen: seen.config_hash != before.config_hash)


async def test_a_paused_worker_stays_and_says_so_where_the_operator_looks(
    failing: Job, server: EngineServer
) -> None:
    port = free_port()
    async with failing.generating(port, WhenPaused.WAIT) as task:
        seen = await progress_when(port, at_rest(server))
        assert TRIPS_AT <= server.count < TRIPS_AT + CONCURRENCY
        assert seen.recent_errors == server.count == seen.progress.errors
        assert seen.message.startswith("paused: 3 of the last 3 asked rows failed, 30 % of a window of 10")
        assert "most often bad_request (3), for example row " in seen.message
        assert seen.message.endswith("raise generation.errorPolicy.pausePercent, or set another resumeToken")
        assert "(warnPercent is 0)" in seen.warning
        assert (seen.progress.requests_per_second, seen.progress.eta) == ("", "")
        assert seen.progress.tokens_per_second is None
        failing.generation["concurrency"] = 8
        await put_in_force(failing, port)
        assert server.count == seen.recent_errors, "more requests at once are no word to go on"
        assert not task.done()


async def test_a_raised_policy_lets_it_go_on(failing: Job, server: EngineServer) -> None:
    port = free_port()
    async with failing.generating(port, WhenPaused.WAIT) as task:
        await progress_when(port, at_rest(server))
        failing.generation["errorPolicy"] = {**POLICY, "pausePercent": 100}
        failing.write()
        code, progress = await task
    assert (code, progress.errors, server.count) == (ExitCode.DONE, 40, 40)


async def test_another_resume_token_lets_it_go_on_with_a_new_window(
    failing: Job, server: EngineServer
) -> None:
    port = free_port()
    async with failing.generating(port, WhenPaused.WAIT) as task:
        before = await progress_when(port, at_rest(server))
        failing.resume_token = "once-more"
        await put_in_force(failing, port)
        again = await progress_when(port, at_rest(server, forgotten=before.progress.errors))
        assert again.progress.errors >= before.progress.errors + TRIPS_AT
        server.script = lambda _: Reply()
        failing.resume_token = "mended"
        failing.write()
        code, progress = await task
    assert code is ExitCode.DONE
    assert (progress.ok, progress.errors) == (40 - again.progress.errors, again.progress.errors)
    assert failing.finish().progress.errors == again.progress.errors


async def test_rows_between_two_tries_wait_too_and_lose_nothing(failing: Job, server: EngineServer) -> None:
    def script(request: Request) -> Reaction:
        if request.number < TRIPS_AT:
            return Fail(400)
        return Fail(500, delay=0.2) if request.number == TRIPS_AT else Reply()

    server.script = script
    port = free_port()
    async with failing.generating(port, WhenPaused.WAIT) as task:
        await progress_when(port, at_rest(server, between_tries=1))
        asked = server.count
        failing.generation["stallTimeout"] = "60s"
        await put_in_force(failing, port)  # which takes longer than the row's backoff
        assert server.count == asked
        failing.resume_token = "on"
        failing.write()
        _, progress = await task
    assert (progress.ok, progress.errors) == (37, 3)


async def test_answers_in_flight_when_it_trips_are_kept(failing: Job, server: EngineServer) -> None:
    server.script = lambda request: Reply(delay=0.3) if request.number == 0 else Fail(400)
    with pytest.raises(JobPausedError, match="then run again, with a higher") as paused:
        await failing.generate()
    assert paused.value.exit_code is ExitCode.PAUSED
    assert len(unique(failing.lines())) == 1
    assert len(unique(failing.lines("dead_letter"))) == server.count - 1
    assert server.count < 40


async def test_run_again_with_a_higher_percentage_it_goes_on_where_it_was(
    failing: Job, server: EngineServer
) -> None:
    failing.run = {"name": "r", "uid": "u"}
    with pytest.raises(JobPausedError):
        await failing.generate()
    asked = server.count
    server.script = lambda _: Reply()
    failing.generation["errorPolicy"] = {**POLICY, "pausePercent": 100}
    code, progress = await failing.generate()
    assert (code, progress.ok, progress.errors) == (ExitCode.DONE, 40 - asked, asked)


async def test_the_program_ends_with_three_and_the_sentence(failing: Job, server: EngineServer) -> None:
    process = failing.start()
    try:
        said, _ = await asyncio.to_thread(process.communicate, timeout=60)
    finally:
        process.kill()  # does nothing to one that has ended
    assert process.returncode == ExitCode.PAUSED.value == 3
    assert "ErrorPolicyTripped: paused: 3 of the last 3 asked rows failed" in said


async def test_the_program_can_be_told_to_stay(failing: Job, server: EngineServer) -> None:
    port = free_port()
    arguments = ("--when-paused", "wait", "--http-port", str(port))
    with ForkedProgram(failing.folder, "generate", "--config", str(failing.write()), *arguments) as program:
        await progress_when(port, at_rest(server), within=60.0)
        code, _ = await asyncio.to_thread(program.stop, signal.SIGTERM)
    assert code == ExitCode.INTERRUPTED


async def test_sigterm_ends_a_paused_worker_at_once(failing: Job, server: EngineServer) -> None:
    port = free_port()
    async with failing.generating(port, WhenPaused.WAIT) as task:
        await progress_when(port, at_rest(server))
        os.kill(os.getpid(), signal.SIGTERM)
        code, progress = await task
    assert (code, progress.errors) == (ExitCode.INTERRUPTED, server.count)


async def test_sigterm_ends_the_wait_for_answers_before_an_exit(failing: Job, server: EngineServer) -> None:
    server.script = lambda request: Reply(delay=30) if request.number == 0 else Fail(400)
    task = asyncio.create_task(failing.generate(grace=0.1))
    await until(lambda: len(failing.lines("dead_letter")) >= TRIPS_AT)
    os.kill(os.getpid(), signal.SIGTERM)
    code, _ = await task
    assert code is ExitCode.INTERRUPTED


async def test_when_nothing_is_left_to_hold_back_the_work_is_done(failing: Job, server: EngineServer) -> None:
    failing.datasets = {"A": prompts(CONCURRENCY)}
    code, progress = await failing.generate()
    assert (code, progress.errors) == (ExitCode.DONE, CONCURRENCY)


STRICT = {"warnPercent": 0, "pausePercent": 0, "window": 10}


async def test_rows_that_were_never_asked_do_not_count(job: Job, server: EngineServer) -> None:
    job.generation = {"errorPolicy": STRICT}
    job.datasets = {"A": [*prompts(10), *prompts(5), *({"nothing": i} for i in range(20))]}
    code, progress = await job.use(server).generate()
    assert (code, progress.ok, progress.errors, progress.skipped) == (ExitCode.DONE, 10, 20, 5)


async def test_dead_letters_of_an_earlier_attempt_do_not_count(failing: Job, server: EngineServer) -> None:
    failing.run = {"name": "r", "uid": "u"}
    with pytest.raises(JobPausedError):
        await failing.generate()
    server.script = lambda _: Reply()
    failing.generation["errorPolicy"] = STRICT
    code, _ = await failing.generate()
    assert code is ExitCode.DONE


async def test_a_server_that_goes_away_is_no_failure_of_rows(job: Job, server: EngineServer) -> None:
    server.script = lambda _: Reply(delay=0.05)
    job.datasets, job.generation = {"A": prompts(200)}, {"retries": 0, "errorPolicy": STRICT}
    async with job.use(server).generating() as task:
        await until(lambda: server.count > 60)
        server.stop()
        await until(lambda: server.in_flight == 0)
        await server.start()
        code, progress = await task
    assert (code, progress.ok, progress.errors) == (ExitCode.DONE, 200, 0)
