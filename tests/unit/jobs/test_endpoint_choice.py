"""Which server a row goes to."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from draftmill_jobs.engines.client import open_session
from draftmill_jobs.engines.failures import FailureKind, RequestFailedError
from draftmill_jobs.generate.endpoints import Endpoint, EndpointPool, EndpointState
from tests.support.endpoints import an_endpoint


@pytest.fixture
async def pool() -> AsyncIterator[EndpointPool]:
    """Three servers that are up: s0, s1, s2."""
    async with open_session() as session:
        pool = EndpointPool(session, lambda: 0.0, lambda: 1.0)
        for name in ("s0", "s1", "s2"):
            endpoint = an_endpoint(name)
            pool.add(endpoint)
            pool.mark(endpoint, EndpointState.UP)
        yield pool


def load(pool: EndpointPool, **taken: int) -> None:
    for name, count in taken.items():
        for _ in range(count):
            pool.endpoints[name].gate.take()


def name_of(endpoint: Endpoint | None) -> str | None:
    return None if endpoint is None else endpoint.spec.name


async def test_rows_that_are_about_to_be_sent_count_too(pool: EndpointPool) -> None:
    """A burst is spread though nothing is on its way yet, as while prompts are tokenized."""
    for _ in range(9):
        chosen = pool.choose()
        assert chosen is not None
        chosen.gate.take()
    assert [endpoint.gate.taken for endpoint in pool.endpoints.values()] == [3, 3, 3]


async def test_the_least_loaded_that_is_up_and_has_room_is_chosen(pool: EndpointPool) -> None:
    load(pool, s0=1, s1=2, s2=3)
    assert name_of(pool.choose()) == "s0"
    pool.endpoints["s0"].gate.set_cap(1)
    assert name_of(pool.choose()) == "s1"
    pool.mark(pool.endpoints["s1"], EndpointState.STARTING)
    assert name_of(pool.choose()) == "s2"
    pool.ended(pool.endpoints["s2"], 0, RequestFailedError(FailureKind.OVERLOADED, "", retry_after=5))
    assert name_of(pool.choose()) is None


async def test_a_row_goes_elsewhere_after_a_failure_if_there_is_another_server(pool: EndpointPool) -> None:
    load(pool, s1=2, s2=3)
    assert name_of(pool.choose(avoid=pool.endpoints["s0"])) == "s1"
    for name in ("s1", "s2"):
        pool.mark(pool.endpoints[name], EndpointState.STARTING)
    assert name_of(pool.choose(avoid=pool.endpoints["s0"])) == "s0"
