"""When a server is taken out, how long it is left alone, and how long nobody is a server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from prometheus_client import generate_latest

from draftmill_api.progress import Concern, Progress, ServerProgress, WorkerState
from draftmill_jobs.engines.client import open_session
from draftmill_jobs.engines.failures import FailureKind, RequestFailedError
from draftmill_jobs.generate.board import Board
from draftmill_jobs.generate.breaker import TRIPS_AT, Breaker
from draftmill_jobs.generate.endpoints import Endpoint, EndpointPool, EndpointState
from draftmill_jobs.generate.outage import Outage
from draftmill_jobs.shared.http import ProgressCollector
from tests.support.endpoints import an_endpoint

UP, TRIPPED = EndpointState.UP, EndpointState.TRIPPED


def test_only_failures_in_a_row_are_too_many() -> None:
    breaker = Breaker()
    assert [breaker.failed() for _ in range(TRIPS_AT - 1)] == [False] * (TRIPS_AT - 1)
    breaker.answered()
    assert [breaker.failed() for _ in range(TRIPS_AT)] == [False] * (TRIPS_AT - 1) + [True]


def test_probes_come_ever_later_until_a_row_is_answered() -> None:
    breaker, waits = Breaker(), []
    for succeeds in (False, False, True, False, False, False):
        breaker.trip()
        waits.append(breaker.open_for)
        if succeeds:
            breaker.close()
            assert (breaker.is_open, breaker.open_for) == (False, 0.0)
    assert waits == [1, 2, 4, 8, 15, 15]
    breaker.answered()
    breaker.trip()
    assert breaker.open_for == 1


@pytest.fixture
async def pool() -> AsyncIterator[EndpointPool]:
    async with open_session() as session:
        pool = EndpointPool(session, lambda: 0.0, lambda: 1.0)
        endpoint = an_endpoint()
        pool.add(endpoint)
        pool.mark(endpoint, UP)
        yield pool


def fail(pool: EndpointPool, kind: FailureKind, times: int = TRIPS_AT) -> Endpoint:
    endpoint = pool.endpoints["s0"]
    for _ in range(times):
        pool.failed(endpoint, RequestFailedError(kind, f"HTTP 599: {kind}"))
    return endpoint


@pytest.mark.parametrize(
    ("kind", "state"),
    [
        (FailureKind.SERVER_ERROR, TRIPPED),
        (FailureKind.TIMEOUT_STALL, TRIPPED),
        (FailureKind.CONNECTION_LOST, TRIPPED),
        (FailureKind.INVALID_RESPONSE, TRIPPED),
        (FailureKind.BAD_REQUEST, UP),
        (FailureKind.CONTEXT_OVERFLOW, UP),
        (FailureKind.OVERLOADED, UP),
    ],
)
async def test_what_is_a_servers_failure(pool: EndpointPool, kind: FailureKind, state: EndpointState) -> None:
    endpoint = fail(pool, kind)
    assert endpoint.state is state
    if state is TRIPPED:
        assert endpoint.problem == f"10 requests in a row failed, the last: HTTP 599: {kind}"
        assert pool.choose() is None


async def test_a_row_that_cannot_be_answered_shows_that_the_server_works(pool: EndpointPool) -> None:
    fail(pool, FailureKind.SERVER_ERROR, TRIPS_AT - 1)
    fail(pool, FailureKind.BAD_REQUEST, 1)
    assert fail(pool, FailureKind.SERVER_ERROR, TRIPS_AT - 1).state is UP


async def test_a_server_that_refuses_even_single_requests_is_taken_out(pool: EndpointPool) -> None:
    gate = pool.endpoints["s0"].gate
    gate.refused(gate.take(), 0.0, None)
    assert gate.limit == 1
    assert fail(pool, FailureKind.OVERLOADED).state is TRIPPED


async def test_what_was_in_flight_when_it_was_taken_out_is_not_held_against_it_again(
    pool: EndpointPool,
) -> None:
    endpoint = fail(pool, FailureKind.SERVER_ERROR, 3 * TRIPS_AT)
    assert endpoint.breaker.open_for == 1


@pytest.mark.parametrize("is_tripped", [True, False])
async def test_a_server_that_is_taken_back_keeps_its_limit_unless_it_is_another_process(
    pool: EndpointPool, *, is_tripped: bool
) -> None:
    endpoint = pool.endpoints["s0"]
    endpoint.gate.set_cap(16)
    endpoint.gate.refused(endpoint.gate.take(), 0.0, None)
    if is_tripped:
        fail(pool, FailureKind.SERVER_ERROR)
    else:
        pool.mark(endpoint, EndpointState.STARTING, "cannot connect")
    pool.take_back(endpoint)
    assert (endpoint.state, endpoint.breaker.is_open) == (UP, False)
    assert endpoint.gate.limit == (1 if is_tripped else 16)


@pytest.mark.parametrize(
    ("states", "seconds"),
    [
        ([EndpointState.STARTING, TRIPPED, EndpointState.PROVING], 50.0),
        ([EndpointState.STARTING, UP], 0.0),
        ([], 0.0),
    ],
    ids=["none is up", "one is up", "none is named"],
)
def test_an_outage_lasts_while_servers_are_named_and_none_is_up(
    states: list[EndpointState], seconds: float
) -> None:
    outage = Outage(100.0)
    assert outage.seconds(states, 150.0) == seconds
    assert outage.seconds([TRIPPED], 151.0) == seconds + 1


async def test_what_is_known_of_a_server_is_told(pool: EndpointPool) -> None:
    endpoint = pool.endpoints["s0"]
    endpoint.gate.set_cap(8)
    endpoint.gate.refused(endpoint.gate.take(), 0.0, None)
    told = fail(pool, FailureKind.SERVER_ERROR).progress()
    assert (told.name, told.state, told.in_flight, told.limit) == ("s0", "tripped", 1, 1)
    assert (told.refused, told.cuts) == (1, 1)
    assert told.problem.startswith("10 requests in a row failed")
    page = generate_latest(
        ProgressCollector(Progress(state=WorkerState.RUNNING, config_hash="", servers=[told], waiting=7))
    )
    assert b'draftmill_server_up{server="s0"} 0.0' in page
    assert b'draftmill_server_limit{server="s0"} 1.0' in page
    assert b'draftmill_server_refused_total{server="s0"} 1.0' in page
    assert b"draftmill_rows_waiting 7.0" in page


def seen_by_worker(*states: str) -> list[ServerProgress]:
    return [
        ServerProgress(name=f"s{i}", state=state, in_flight=0, problem="" if state == "up" else "HTTP 500")
        for i, state in enumerate(states)
    ]


@pytest.mark.parametrize(
    ("states", "sentence"),
    [
        (["up", "up"], ""),
        (["up", "proving"], ""),
        (["up", "tripped"], "1 of 2 servers have rows, out are s1 (HTTP 500)"),
        (
            ["starting", "up", "tripped", "up"],
            "2 of 4 servers have rows, out are s0 (HTTP 500), s2 (HTTP 500)",
        ),
        (["tripped", "tripped"], ""),
    ],
    ids=["all are up", "one is looked at", "one is out", "two are out", "none is up"],
)
def test_servers_that_are_out_while_others_work_are_named(states: list[str], sentence: str) -> None:
    board = Board("", "0/1", 1, 0.0, "", state=WorkerState.RUNNING, servers=seen_by_worker(*states))
    seen = board.progress(0.0)
    assert seen.warning == sentence
    assert not sentence or seen.concern is Concern.SERVER_OUT
