"""The servers in use: which are up, which has least to do, and asking one of them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType

from draftmill_api.progress import ServerProgress
from draftmill_api.v1alpha1.shared import Endpoint as EndpointSpec
from draftmill_jobs.engines.base import Answer, Ask, Route, StreamingRoute
from draftmill_jobs.engines.client import Session, is_healthy, send
from draftmill_jobs.engines.failures import FailureKind, RequestFailedError, Verdict
from draftmill_jobs.generate.affinity import may_have_more, preferred
from draftmill_jobs.generate.breaker import TRIPS_AT, Breaker
from draftmill_jobs.generate.gate import Gate
from draftmill_jobs.generate.life import Flight, Life


class EndpointState(Enum):
    """Where an endpoint is."""

    STARTING = "starting"
    """Not known to be well."""
    PROVING = "proving"
    """It answers; the preflight is under way."""
    UP = "up"
    TRIPPED = "tripped"
    """Taken out, for its answers failed or did not come; it is probed."""


@dataclass(eq=False)
class Endpoint:
    """One server.

    Attributes:
        spec: Name, address, engine.
        gate: How many of our requests it may have.
        breaker: Whether it may have any, after failures.
        streamed: The route, when answers are streamed since the server shows no metrics.
        problem: Why it is not up, in a sentence.
    """

    spec: EndpointSpec
    route: Route
    life: Life
    gate: Gate = field(default_factory=lambda: Gate(None))
    breaker: Breaker = field(default_factory=Breaker)
    state: EndpointState = EndpointState.STARTING
    streamed: StreamingRoute | None = None
    problem: str = "not asked yet"
    removed: bool = False

    def __post_init__(self) -> None:
        self.went_down = asyncio.Event()
        self._check: asyncio.Task[str] | None = None

    @property
    def load(self) -> int:
        """Requests that it has of us, or is about to have."""
        return max(self.gate.taken, len(self.life.flights))

    def progress(self) -> ServerProgress:
        """What there is to tell of it."""
        limit = self.gate.limit
        return ServerProgress(
            name=self.spec.name,
            state=self.state.value,
            in_flight=self.load,
            limit=None if math.isinf(limit) else int(limit),
            refused=self.gate.refusals,
            cuts=self.gate.generation,
            problem=self.problem,
        )


class EndpointPool:
    """All endpoints of the run."""

    def __init__(
        self,
        session: Session,
        clock: Callable[[], float],
        connect_timeout: Callable[[], float],
        room_came: Callable[[], None] = lambda: None,
    ) -> None:
        """Takes what is called when an endpoint may have more room than before."""
        self.endpoints: dict[str, Endpoint] = {}
        self.session = session
        self.clock = clock
        self.connect_timeout = connect_timeout
        self._room_came = room_came
        self._leaving: set[Endpoint] = set()
        self._some_up = asyncio.Event()

    @property
    def in_flight(self) -> int:
        """Requests in flight, those to removed endpoints too."""
        return sum(len(endpoint.life.flights) for endpoint in (*self.endpoints.values(), *self._leaving))

    def choose(self, avoid: Endpoint | None = None, prefix: bytes | None = None) -> Endpoint | None:
        """Of the endpoints that are up and have room the one preferred for a prefix, or the least loaded.

        Args:
            avoid: Is chosen only if there is no other.
            prefix: How the prompt begins; who is preferred for it is not chosen with more than its part.
        """
        now = self.clock()
        up = [endpoint for endpoint in self.endpoints.values() if endpoint.state is EndpointState.UP]
        free = [endpoint for endpoint in up if endpoint.gate.has_room(now)]
        least = min(free, key=lambda endpoint: (endpoint is avoid, endpoint.load), default=None)
        if prefix is None or len(free) < 2:
            return least
        name = preferred(prefix, (endpoint.spec.name for endpoint in up if endpoint is not avoid))
        warm = self.endpoints[name]
        if warm in free and may_have_more(warm.load, [endpoint.load for endpoint in free]):
            return warm
        return least

    async def until_up(self) -> None:
        """Waits until some endpoint is up."""
        await self._some_up.wait()

    def mark(self, endpoint: Endpoint, state: EndpointState, problem: str = "") -> None:
        """Notes an endpoint's new state."""
        endpoint.state, endpoint.problem = state, problem
        if state is EndpointState.UP:
            endpoint.went_down.clear()
        else:
            endpoint.went_down.set()
        self._note()

    def add(self, endpoint: Endpoint) -> None:
        """Takes an endpoint in."""
        self.endpoints[endpoint.spec.name] = endpoint
        self._note()

    def remove(self, name: str) -> None:
        """Takes an endpoint out; what is in flight there may still finish."""
        endpoint = self.endpoints.pop(name)
        endpoint.removed = True
        if endpoint.life.flights:
            self._leaving.add(endpoint)
        self._note()

    def set_cap(self, endpoint: Endpoint, cap: int | None) -> None:
        """Changes how many of our requests an endpoint may have; above a lower cap they run out."""
        endpoint.gate.set_cap(cap)
        self._room_came()

    def ended(self, endpoint: Endpoint, generation: int, failure: RequestFailedError | None) -> None:
        """Notes how a request ended that still has its place.

        Args:
            endpoint: Who was asked.
            generation: Of its gate, when the request was admitted.
            failure: Why there is no answer, None if there is one.
        """
        if failure is None:
            endpoint.gate.answered()
            endpoint.breaker.answered()
        elif failure.kind is FailureKind.OVERLOADED:
            endpoint.gate.refused(generation, self.clock(), failure.retry_after)
            self._look_when_open(endpoint)

    def failed(self, endpoint: Endpoint, failure: RequestFailedError) -> None:
        """Notes that a row has no answer of an endpoint that is there; nothing but such failures trips it.

        A server that refuses what is more than one request has no room; one that refuses each has failed.
        """
        if failure.verdict is Verdict.DEAD:
            endpoint.breaker.answered()
        elif failure.kind is FailureKind.OVERLOADED and endpoint.gate.limit > 1:
            return
        elif endpoint.state is EndpointState.UP and endpoint.breaker.failed():
            self.trip(endpoint, f"{TRIPS_AT} requests in a row failed, the last: {failure.message}")

    def trip(self, endpoint: Endpoint, problem: str) -> None:
        """Takes an endpoint out until a probe succeeds there; what is in flight may still finish."""
        endpoint.breaker.trip()
        self.mark(endpoint, EndpointState.TRIPPED, problem)

    def _look_when_open(self, endpoint: Endpoint) -> None:
        closed = endpoint.gate.closed_for(self.clock())
        if closed > 0:
            asyncio.get_running_loop().call_later(closed, self._look_when_open, endpoint)
        else:
            self._room_came()

    def _note(self) -> None:
        if any(endpoint.state is EndpointState.UP for endpoint in self.endpoints.values()):
            self._some_up.set()
            self._room_came()
        else:
            self._some_up.clear()

    def take_back(self, endpoint: Endpoint) -> None:
        """An endpoint has proved itself: rows may go there, now or again."""
        if endpoint.breaker.is_open:
            endpoint.breaker.close()
        else:
            endpoint.gate.forget()  # another process than the one that refused
        self.mark(endpoint, EndpointState.UP)

    async def is_lost(self, endpoint: Endpoint) -> bool:
        """Whether a failed request is the server's doing: it is gone, or says that it is not well.

        Those that fail together share one look.
        """
        if endpoint.removed or not (endpoint.state is EndpointState.UP or endpoint.breaker.is_open):
            return True
        if endpoint._check is None or endpoint._check.done():
            check = is_healthy(self.session, endpoint.spec.url, connect_timeout=self.connect_timeout())
            endpoint._check = asyncio.ensure_future(check)
        problem = await asyncio.shield(endpoint._check)
        if problem and endpoint.state is EndpointState.UP:
            self.mark(endpoint, EndpointState.STARTING, problem)
        return bool(problem)

    async def ask(self, endpoint: Endpoint, ask: Ask) -> Answer:
        """Sends one request and watches over it.

        Raises:
            RequestFailedError: It brought no answer.
        """
        async with self.watched(endpoint) as byte_came:
            return await send(
                self.session,
                endpoint.spec.url,
                endpoint.route,
                ask,
                streamed=endpoint.streamed,
                connect_timeout=self.connect_timeout(),
                byte_came=byte_came,
            )

    def watched(self, endpoint: Endpoint) -> Watch:
        """Counts a request as in flight and watches over it; yields what to call when a byte came.

        Raises:
            RequestFailedError: The endpoint is gone, or showed no sign of life and the request was given up.
        """
        return Watch(self, endpoint)

    def flown(self, endpoint: Endpoint, flight: Flight) -> None:
        """A request to an endpoint is over."""
        endpoint.life.ended(flight, self.clock())
        if not endpoint.life.flights:
            self._leaving.discard(endpoint)


class Watch:
    """The time of one request to an endpoint: it is counted, and given up if the endpoint shows no life.

    A class, for as a generator it would cost a small request a few percent of its time.
    """

    __slots__ = ("_deadline", "_endpoint", "_flight", "_pool")

    def __init__(self, pool: EndpointPool, endpoint: Endpoint) -> None:
        self._pool, self._endpoint = pool, endpoint
        self._deadline = asyncio.timeout(None)
        self._flight = Flight(pool.clock(), self._give_up)

    async def __aenter__(self) -> Callable[[], None]:
        if self._endpoint.removed:
            raise RequestFailedError(
                FailureKind.CONNECTION_LOST,
                f"endpoint {self._endpoint.spec.name} was taken out of the config",
            )
        await self._deadline.__aenter__()
        self._endpoint.life.flights.add(self._flight)
        return self._byte_came

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._deadline.__aexit__(kind, error, trace)
        except TimeoutError as timeout:
            raise self._failure() from timeout
        finally:
            self._pool.flown(self._endpoint, self._flight)

    def _byte_came(self) -> None:
        self._endpoint.life.byte_came(self._flight, self._pool.clock())

    def _give_up(self) -> None:
        self._deadline.reschedule(0.0)

    def _failure(self) -> RequestFailedError:
        name = self._endpoint.spec.name
        if self._flight.is_moved:
            return RequestFailedError(
                FailureKind.CONNECTION_LOST, f"{name} was taken out: {self._endpoint.problem}"
            )
        return RequestFailedError(
            FailureKind.TIMEOUT_STALL, f"{name} showed no sign of life; the request was given up"
        )
