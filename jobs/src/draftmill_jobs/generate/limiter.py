"""The caps on requests in flight: each request holds a lease, released exactly once."""

from __future__ import annotations

import asyncio
from collections import deque
from enum import Enum
from itertools import count
from typing import NamedTuple, Self


class Size(Enum):
    """How long a request's prompt is."""

    SHORT = "short"
    LONG = "long"


class Caps(NamedTuple):
    """Most leases at once: of long requests, and of all together, which is at least as much."""

    long: int
    total: int


class Lease:
    """The right to have one request of a size in flight."""

    def __init__(self, limiter: Limiter, size: Size) -> None:
        self._limiter: Limiter | None = limiter
        self.size = size

    def release(self) -> None:
        """Gives the right back. A second call does nothing."""
        limiter, self._limiter = self._limiter, None
        if limiter is not None:
            limiter._give_back(self.size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class _Turn(NamedTuple):
    number: int
    given: asyncio.Future[None]


class Limiter:
    """Gives leases up to caps that may change at any time, and none while paused.

    Who came first goes first. Only a long request that waits for another long one to end lets short ones
    pass: of a place that both could have, the first gets it, so short ones cannot keep a long one out.
    """

    def __init__(self, caps: Caps) -> None:
        self._caps = caps
        self._leased = dict.fromkeys(Size, 0)
        self._paused = False
        self._waiting: dict[Size, deque[_Turn]] = {size: deque() for size in Size}
        self._after, self._before = count(), count(-1, -1)

    @property
    def caps(self) -> Caps:
        """The caps in force."""
        return self._caps

    def set_caps(self, caps: Caps) -> None:
        """Changes the caps; above lower ones, leases run out by themselves."""
        self._caps = caps
        self._hand_out()

    def pause(self) -> None:
        """Gives no lease from now on; those given run out by themselves."""
        self._paused = True

    def resume(self) -> None:
        """Gives leases again."""
        self._paused = False
        self._hand_out()

    async def lease(self, size: Size = Size.LONG, *, first: bool = False) -> Lease:
        """Waits for a free place; `first` goes before all who wait, as a row does that was asked before."""
        turn = _Turn(next(self._before if first else self._after), asyncio.get_running_loop().create_future())
        if first:
            self._waiting[size].appendleft(turn)
        else:
            self._waiting[size].append(turn)
        self._hand_out()
        try:
            await turn.given
        except asyncio.CancelledError:
            if turn.given.done() and not turn.given.cancelled():
                self._give_back(size)
            raise
        return Lease(self, size)

    def has_room(self, size: Size) -> bool:
        """Whether a request of this size could go now."""
        if self._paused or sum(self._leased.values()) >= self._caps.total:
            return False
        return size is Size.SHORT or self._leased[Size.LONG] < self._caps.long

    def _give_back(self, size: Size) -> None:
        self._leased[size] -= 1
        self._hand_out()

    def _hand_out(self) -> None:
        while (size := self._next()) is not None:
            turn = self._waiting[size].popleft()
            if not turn.given.done():
                self._leased[size] += 1
                turn.given.set_result(None)

    def _next(self) -> Size | None:
        """The size of the first that waits and could go."""
        ready = [size for size, turns in self._waiting.items() if turns and self.has_room(size)]
        return min(ready, key=lambda size: self._waiting[size][0].number, default=None)
