"""Failures of servers and rows: what is asked again, what is buried, what stops the run."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import pytest

from draftmill_api.exitcode import ExitCode
from draftmill_jobs.engines.client import open_session, post
from draftmill_jobs.engines.failures import FailureKind, RequestFailedError, Verdict
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.generate import retry
from tests.support.engine_server import Cut, EngineServer, Fail, Hold, Reaction, Reply, Request, Stall
from tests.support.job import Job, prompts, unique, until
from tests.support.job_pages import get, progress_when
from tests.support.ports import free_port


@pytest.fixture(autouse=True)
def short_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_BASE", 0.02)
    monkeypatch.setattr(retry, "_CAP", 0.1)


def abort_openai(body: dict[str, Any]) -> None:
    body["choices"][0]["finish_reason"] = "abort"
    body["choices"][0]["token_ids"] = body["choices"][0]["token_ids"][:2]


PASSING = {
    "408": Fail(408),
    "409": Fail(409),
    "425": Fail(425),
    "429": Fail(429, headers=("Retry-After: 0",)),
    "500": Fail(500),
    "502 html": Fail(502, b"<html><body><h1>Bad Gateway</h1></body></html>"),
    "503 flat": Fail(503, b'{"object":"error","message":"The request queue is full.","code":503}'),
    "504 empty": Fail(504, b""),
    "cut": Cut(),
    "abort": Reply(edit=abort_openai),
    "not json": Fail(200, b"<html>login</html>"),
}


@pytest.mark.parametrize("failure", PASSING.values(), ids=PASSING.keys())
async def test_a_failure_that_passes_is_asked_again(
    job: Job, server: EngineServer, failure: Reaction
) -> None:
    server.script = lambda request: failure if request.tries < 2 and request.number < 30 else Reply()
    code, progress = await job.use(server).generate()
    assert code is ExitCode.DONE
    assert (progress.ok, progress.errors) == (20, 0)
    assert progress.retried == server.count - 20 > 0
    unique(job.lines())
    assert all(len(line["output_ids"]) == 16 for line in job.lines())


@pytest.mark.parametrize("status", [429, 503])
async def test_a_row_is_asked_again_no_sooner_than_the_server_wants(
    job: Job, server: EngineServer, status: int
) -> None:
    asked: list[float] = []

    def script(request: Request) -> Reaction:
        asked.append(asyncio.get_running_loop().time())
        return Reply() if request.tries else Fail(status, headers=("Retry-After: 1",))

    server.script = script
    job.datasets = {"A": prompts(1)}
    _, progress = await job.use(server).generate()
    first, second = asked
    assert second - first >= 1
    assert (progress.ok, progress.retried) == (1, 1)


@pytest.fixture
def full_listener() -> Iterator[str]:
    """The address of a listener that takes no connections: those that wait for it are as many as may."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        host, port = listener.getsockname()
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex((host, port))
        yield f"http://{host}:{port}"


async def test_a_connection_that_does_not_come_about_in_time_is_a_failure_that_passes(
    full_listener: str,
) -> None:
    async with open_session() as session, asyncio.timeout(20):
        with pytest.raises(RequestFailedError, match=r"no connection to .* within 0\.2 s") as failed:
            await post(
                session, full_listener, "/generate", b"{}", connect_timeout=0.2, byte_came=lambda: None
            )
    assert (failed.value.kind, failed.value.verdict) == (FailureKind.TIMEOUT_CONNECT, Verdict.RETRY)


async def test_a_failure_that_stays_costs_each_row_its_tries_and_no_more(
    job: Job, server: EngineServer
) -> None:
    server.script = lambda _: Fail(500)
    job.generation = {"retries": 2}
    code, progress = await job.use(server).generate()
    assert code is ExitCode.DONE
    assert (progress.errors, progress.done) == (20, 0)
    assert set(server.by_prompt.values()) == {3}
    letters = job.lines("dead_letter")
    assert len(unique(letters)) == 20
    assert {(letter["reason"], letter["permanent"], letter["tries"]) for letter in letters} == {
        ("server_error", False, 3)
    }


async def test_each_try_has_a_request_id_of_its_own_and_the_row_keeps_its_own(
    job: Job, server: EngineServer
) -> None:
    """Public failure 30 (vllm-project/vllm#20520): a request that is sent again is taken for the first."""
    server.script = lambda request: Fail(500) if request.tries < 2 else Reply()
    job.datasets = {"A": prompts(3)}
    await job.use(server).generate()
    sent = [request.payload["request_id"] for request in server.requests]
    assert len(set(sent)) == len(sent) == 9
    assert {identity.partition("-")[0] for identity in sent} == unique(job.lines())


ROW_FAULTS = {
    "bad field": (400, b'{"error":{"message":"top_p must be in (0, 1]","code":400}}', "bad_request"),
    "too long": (
        400,
        b'{"error":{"message":"The input (9 tokens) is longer than the model\'s context length (8)."}}',
        "context_overflow",
    ),
    "vllm too long": (
        400,
        b'{"error":{"message":"too big","param":"input_tokens","code":400}}',
        "context_overflow",
    ),
    "413": (413, b"", "context_overflow"),
    "422": (422, b'{"detail":[{"msg":"field required"}]}', "bad_request"),
}


@pytest.mark.parametrize(("status", "body", "reason"), ROW_FAULTS.values(), ids=ROW_FAULTS.keys())
async def test_a_row_that_cannot_be_answered_is_buried_after_one_try(
    job: Job, server: EngineServer, status: int, body: bytes, reason: str
) -> None:
    server.script = lambda request: Fail(status, body) if request.number == 5 else Reply()
    code, progress = await job.use(server).generate()
    assert code is ExitCode.DONE
    assert (progress.ok, progress.errors, progress.retried, server.count) == (19, 1, 0, 20)
    (letter,) = job.lines("dead_letter")
    assert (letter["reason"], letter["permanent"], letter["tries"]) == (reason, True, 1)


async def test_failed_requests_are_counted_by_reason_beside_the_rows_that_failed(
    job: Job, server: EngineServer
) -> None:
    def script(request: Request) -> Reaction:
        if request.number == 0:
            return Fail(400)
        return Fail(504) if request.tries == 0 else Hold()

    server.script = script
    job.datasets, port = {"A": prompts(4)}, free_port()
    async with job.use(server).generating(port) as task:
        seen = await progress_when(port, lambda seen: seen.progress.errors == 1 and len(server.held) == 3)
        page = await get(port, "/metrics")
        server.let_go()
        await task
    assert seen.request_failures == {"bad_request": 1, "proxy_timeout": 3}
    assert 'draftmill_request_failures_total{reason="proxy_timeout"} 3.0' in page
    assert 'draftmill_failures_total{reason="bad_request"} 1.0' in page
    assert 'draftmill_failures_total{reason="proxy_timeout"}' not in page


@pytest.mark.parametrize("status", [401, 403, 404, 402, 405])
async def test_a_refusal_of_the_server_stops_the_run_and_spends_no_row(
    job: Job, server: EngineServer, status: int
) -> None:
    server.script = lambda request: Fail(status) if request.number >= 3 else Reply()
    with pytest.raises(JobRefusedError, match=f"s0 .* refuses every request: HTTP {status}") as refused:
        await job.use(server).generate()
    assert refused.value.exit_code is ExitCode.CONFIGURATION
    assert job.lines("dead_letter") == []


async def test_a_quarter_of_failures_does_not_lower_the_number_in_flight(
    job: Job, server: EngineServer
) -> None:
    """Public failure 12 (bespokelabsai/curator#202): each failure costs a permit, and concurrency decays.

    A lease that leaked with a failure would be missing when as many answers are held as there are.
    """

    def script(request: Request) -> Reaction:
        if 300 <= request.number < 320:
            return Hold(20)
        return Fail(500) if request.number % 4 == 0 and request.tries < 3 else Reply()

    server.script = script
    job.datasets, job.generation = {"A": prompts(400)}, {"concurrency": 20}
    async with job.use(server).generating() as task:
        _, progress = await task
    assert progress.ok == 400
    assert progress.retried > 50
    assert server.most_in_flight == 20


async def test_a_server_that_goes_away_costs_no_row_its_tries(job: Job, server: EngineServer) -> None:
    server.script = lambda _: Reply(delay=0.05)
    job.datasets, job.generation = {"A": prompts(200)}, {"retries": 0}
    async with job.use(server).generating() as task:
        await until(lambda: server.count > 60)
        server.stop()
        await asyncio.sleep(1.2)  # longer than the backoff of several tries
        await server.start()
        code, progress = await task
    assert code is ExitCode.DONE
    assert (progress.ok, progress.errors) == (200, 0)
    unique(job.lines())


@asynccontextmanager
async def generating_tokens(server: EngineServer) -> AsyncIterator[None]:
    """Lets the server's own count of tokens grow, as it does while answers of any length are made."""

    async def work() -> None:
        while True:
            server.generated += 10
            await asyncio.sleep(0.05)

    working = asyncio.create_task(work())
    try:
        yield
    finally:
        working.cancel()


async def test_a_server_that_answers_slowly_but_works_is_waited_for(job: Job, server: EngineServer) -> None:
    """Public failure 2 (langflow#9650): long answers ended at a limit of 60 or 90 seconds."""
    server.script = lambda _: Reply(delay=1.5)
    job.datasets, job.generation = {"A": prompts(4)}, {"stallTimeout": "500ms"}
    async with generating_tokens(server):
        _, progress = await job.use(server).generate()
    assert (progress.ok, progress.retried) == (4, 0)


@pytest.mark.parametrize("metrics", [True, False])
async def test_a_server_without_a_sign_of_life_is_asked_again(
    job: Job, server: EngineServer, metrics: bool
) -> None:
    """Public failure 20 (vllm-project/vllm#9428): requests that were given up go on running on the server."""
    server.metrics = metrics
    server.script = lambda request: Stall() if request.number < 4 else Reply()
    job.datasets, job.generation = {"A": prompts(4)}, {"stallTimeout": "500ms"}
    _, progress = await job.use(server).generate()
    assert (progress.ok, progress.errors) == (4, 0)
    assert progress.retried == 4
    assert server.disconnects == 4, "a request that is given up is ended on the server too"


async def test_a_stall_that_stays_ends_with_dead_letters(job: Job, server: EngineServer) -> None:
    """Public failure 3 (UKGovernmentBEIS/inspect_ai#3558): timeouts and retries become a storm without end.

    What is sent is at most rows x (1 + retries), and what failed is told.
    """
    server.script = lambda _: Stall()
    job.datasets, job.generation = {"A": prompts(3)}, {"stallTimeout": "200ms", "retries": 1}
    _, progress = await job.use(server).generate()
    assert (progress.errors, server.count) == (3, 6)
    assert {letter["reason"] for letter in job.lines("dead_letter")} == {"timeout_stall"}


async def test_one_lost_request_is_found_by_the_servers_own_count(job: Job, server: EngineServer) -> None:
    def script(request: Request) -> Reaction:
        return Stall() if request.number == 0 else Reply(delay=0.05)

    server.script = script
    server.running = 0  # the server says that it has nothing
    job.datasets, job.generation = {"A": prompts(120)}, {"stallTimeout": "600ms", "concurrency": 4}
    _, progress = await job.use(server).generate()
    assert (progress.ok, progress.retried) == (120, 1)


async def test_a_slow_tail_loses_nothing(job: Job, server: EngineServer) -> None:
    """Public failure 1 (curator#265): a limit on the time of a request lost the longest answers."""
    server.script = lambda request: Reply(delay=4.0 if request.number % 12 == 0 else 0.04)
    job.datasets, job.generation = (
        {"A": prompts(300)},
        {"concurrency": 60, "stallTimeout": "2s", "connectTimeout": "30s"},
    )
    async with generating_tokens(server):
        _, progress = await job.use(server).generate()
    assert (progress.ok, progress.retried, server.count) == (300, 0, 300)
    unique(job.lines())
