"""Looking after one endpoint: wait for it, prove it, watch it, and start again when it is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from draftmill_jobs.engines.base import StreamingRoute
from draftmill_jobs.engines.client import is_healthy, read_server_figures
from draftmill_jobs.engines.failures import RequestFailedError
from draftmill_jobs.generate.endpoints import Endpoint, EndpointPool, EndpointState

log = logging.getLogger(__name__)

_POLL = 1.0  # seconds between looks at a server that is not up
_LOOKS_PER_LIMIT = 20  # looks at its metrics within a stall timeout
_SHORTEST_LOOK, _LONGEST_LOOK = 0.05, 1.0  # seconds between them
_FIRST_LOOK = 5.0  # seconds that the first look at its metrics may take


class Prover(Protocol):
    """Proves an endpoint before it is used."""

    async def prove(self, endpoint: Endpoint) -> None:
        """Returns when the endpoint can be trusted.

        Raises:
            JobRefusedError: It disagrees; both values are in the message.
            RequestFailedError: It did not answer this time.
        """


async def keep(
    pool: EndpointPool, endpoint: Endpoint, preflight: Prover, stall_timeout: Callable[[], float]
) -> None:
    """Looks after an endpoint as long as it is in the pool; never returns.

    Raises:
        JobRefusedError: The preflight found that it disagrees.
    """
    while True:
        try:
            await asyncio.sleep(endpoint.breaker.open_for)
            await _until_healthy(pool, endpoint)
            endpoint.streamed = await _streamed(pool, endpoint)
            pool.mark(endpoint, EndpointState.PROVING)
            async with asyncio.TaskGroup() as watched:
                watching = watched.create_task(watch(pool, endpoint, stall_timeout))
                await preflight.prove(endpoint)
                pool.take_back(endpoint)
                await endpoint.went_down.wait()
                watching.cancel()
        except* RequestFailedError as failures:
            problem = str(failures.exceptions[0])
            log.warning("endpoint %s: %s", endpoint.spec.name, problem)
            if endpoint.breaker.is_open:
                pool.trip(endpoint, f"taken out; the last probe failed: {problem}")
            else:
                pool.mark(endpoint, EndpointState.STARTING, problem)
                await asyncio.sleep(_POLL)
        else:
            log.warning("endpoint %s is taken out: %s", endpoint.spec.name, endpoint.problem)


async def _until_healthy(pool: EndpointPool, endpoint: Endpoint) -> None:
    said = ""
    while problem := await is_healthy(
        pool.session, endpoint.spec.url, connect_timeout=pool.connect_timeout()
    ):
        if problem != said:
            log.info("waiting for endpoint %s (%s): %s", endpoint.spec.name, endpoint.spec.url, problem)
            said = problem
        pool.mark(endpoint, EndpointState.STARTING, problem)
        await asyncio.sleep(_POLL)


async def _streamed(pool: EndpointPool, endpoint: Endpoint) -> StreamingRoute | None:
    """The route whose answers have to be streamed, for the server shows no metrics, or not in time.

    Raises:
        RequestFailedError: The server did not answer this time.
    """
    if not isinstance(endpoint.route, StreamingRoute):
        return None
    try:
        async with asyncio.timeout(_FIRST_LOOK):
            figures = await read_server_figures(pool.session, endpoint.spec.url, endpoint.spec.engine)
    except TimeoutError:
        log.warning("endpoint %s: /metrics takes more than %g s", endpoint.spec.name, _FIRST_LOOK)
        figures = None
    return endpoint.route if figures is None else None


async def watch(pool: EndpointPool, endpoint: Endpoint, stall_timeout: Callable[[], float]) -> None:
    """Gives up the requests of which the server shows no sign of life.

    Returns when the endpoint has been removed and nothing is in flight there any longer.
    """
    while endpoint.life.flights or not endpoint.removed:
        limit = stall_timeout()
        await asyncio.sleep(min(_LONGEST_LOOK, max(_SHORTEST_LOOK, limit / _LOOKS_PER_LIMIT)))
        if endpoint.streamed is None:
            try:
                figures = await read_server_figures(pool.session, endpoint.spec.url, endpoint.spec.engine)
            except RequestFailedError:
                figures = endpoint.life.figures  # no news; only time passes
            endpoint.life.observe(figures, pool.clock())
        now = pool.clock()
        lost = endpoint.life.lost_flights(now, limit)
        for flight in lost:
            flight.give_up()
        if lost and endpoint.life.is_silent(now, limit) and endpoint.state is EndpointState.UP:
            pool.trip(endpoint, f"no sign of life for {limit:g} s")
            for flight in endpoint.life.flights:
                flight.give_up(is_moved=True)
