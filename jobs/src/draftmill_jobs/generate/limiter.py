"""The caps on requests in flight: each request holds a lease on a place, released exactly once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from enum import Enum, StrEnum
from itertools import count
from typing import NamedTuple, Self

from draftmill_jobs.generate.endpoints import Endpoint
from draftmill_jobs.generate.quota import Quota


class Size(StrEnum):
    """How long a request's prompt is; a string, for the hash of a plain `Enum` is a call of Python's own."""

    PROBE = "probe"
    """That of a preflight, which goes before all others."""
    SHORT = "short"
    LONG = "long"


class Hold(Enum):
    """Why no lease is given, whatever has room."""

    ERROR_POLICY = "error policy"
    STORAGE_FULL = "storage full"


class Caps(NamedTuple):
    """Most leases at once: of long requests, and of all together, which is at least as much."""

    long: int
    total: int


class Lease:
    """The right to have one request in flight at a server.

    Attributes:
        generation: Cuts of the server's gate when the lease was given.
        charged: Tokens that the quota was charged for the request.
    """

    def __init__(self, limiter: Limiter, size: Size, server: Endpoint, charged: float) -> None:
        self._limiter: Limiter | None = limiter
        self.size = size
        self.server = server
        self.charged = charged
        self.generation = server.gate.take()

    def release(self) -> None:
        """Gives the right back.

        Raises:
            RuntimeError: It has been given back already.
        """
        if self._limiter is None:
            raise RuntimeError(f"a lease on {self.server.spec.name} is released twice")
        limiter, self._limiter = self._limiter, None
        self.server.gate.give_back()
        limiter._give_back(self.size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class _Turn(NamedTuple):
    number: int
    size: Size
    choose: Callable[[], Endpoint | None]
    given: asyncio.Future[Lease]


class Limiter:
    """Gives leases: up to caps, on servers that have room, as fast as a quota lets, and none while paused.

    Probes go first, then who came first. Only a long request that waits for another long one to end lets
    short ones pass: of a place that both could have, the first gets it, so short ones cannot keep a long one
    out.
    """

    def __init__(self, caps: Caps, quota: Quota, clock: Callable[[], float]) -> None:
        self._caps = caps
        self._quota = quota
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._leased, self._leased_long = 0, 0
        self._holds: set[Hold] = set()
        self._waiting: dict[Size, deque[_Turn]] = {size: deque() for size in Size}
        self._after, self._before = count(), count(-1, -1)

    @property
    def caps(self) -> Caps:
        """The caps in force."""
        return self._caps

    @property
    def leased(self) -> int:
        """Leases that are given and not released."""
        return self._leased

    @property
    def waiting(self) -> int:
        """Who waits for a lease."""
        return sum(not turn.given.done() for turns in self._waiting.values() for turn in turns)

    def set_caps(self, caps: Caps) -> None:
        """Changes the caps; above lower ones, leases run out by themselves."""
        self._caps = caps
        self.look_again()

    def pause(self, hold: Hold) -> None:
        """Gives no lease from now on; those given run out by themselves."""
        self._holds.add(hold)

    def resume(self, hold: Hold) -> None:
        """Gives leases again, unless something else holds them."""
        self._holds.discard(hold)
        self.look_again()

    async def lease(self, size: Size, choose: Callable[[], Endpoint | None], *, first: bool = False) -> Lease:
        """Waits for a free place.

        Args:
            size: Of the request.
            choose: Chooses its server among those with room, when its turn has come; None when none has any.
            first: Goes before all who wait, as a row does that was asked before.
        """
        return await self._queue(size, choose, first=first)

    async def probe(self, server: Endpoint) -> Lease:
        """Waits for a free place at a server, whether it has room for others or not."""
        return await self._queue(Size.PROBE, lambda: server, first=False)

    def has_room(self, size: Size) -> bool:
        """Whether the caps let a request of this size go now."""
        if self._holds or self._leased >= self._caps.total:
            return False
        return size is not Size.LONG or self._leased_long < self._caps.long

    def look_again(self) -> None:
        """Gives what leases may be given: a server has come up, or has more room than before."""
        while (turn := self._next()) is not None:
            if turn.given.done():
                self._waiting[turn.size].popleft()
                continue
            now = self._clock()
            wait = self._quota.wait(now)
            server = turn.choose() if wait == 0 else None
            if server is None:
                self._look_again_in(wait)
                return
            self._waiting[turn.size].popleft()
            self._count(turn.size, 1)
            turn.given.set_result(Lease(self, turn.size, server, self._quota.charge(now)))

    def _look_again_in(self, wait: float) -> None:
        """After so many seconds; 0 is when somebody says that there is room."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if wait > 0:
            self._timer = asyncio.get_running_loop().call_later(wait, self._look_again_now)

    def _look_again_now(self) -> None:
        self._timer = None
        self.look_again()

    async def _queue(self, size: Size, choose: Callable[[], Endpoint | None], *, first: bool) -> Lease:
        given: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()
        turn = _Turn(next(self._before if first else self._after), size, choose, given)
        if first:
            self._waiting[size].appendleft(turn)
        else:
            self._waiting[size].append(turn)
        self.look_again()
        try:
            return await given
        except asyncio.CancelledError:
            if given.done() and not given.cancelled():
                given.result().release()
            raise

    def _give_back(self, size: Size) -> None:
        self._count(size, -1)
        self.look_again()

    def _count(self, size: Size, leases: int) -> None:
        self._leased += leases
        if size is Size.LONG:
            self._leased_long += leases

    def _next(self) -> _Turn | None:
        """The first that waits and that the caps let go; probes before all others."""
        first: _Turn | None = None
        for size, turns in self._waiting.items():
            if turns and (first is None or turns[0].number < first.number) and self.has_room(size):
                first = turns[0]
                if size is Size.PROBE:
                    break
        return first
