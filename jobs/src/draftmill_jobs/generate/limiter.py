"""The cap on requests in flight: each holds a lease, released exactly once."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Self


class Lease:
    """The right to have one request in flight."""

    def __init__(self, limiter: Limiter) -> None:
        self._limiter: Limiter | None = limiter

    def release(self) -> None:
        """Gives the right back. A second call does nothing."""
        limiter, self._limiter = self._limiter, None
        if limiter is not None:
            limiter._give_back()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Limiter:
    """At most `limit` leases at once; the limit may change at any time, and none are given while paused."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._leased = 0
        self._paused = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def limit(self) -> int:
        """The cap in force."""
        return self._limit

    def set_limit(self, limit: int) -> None:
        """Changes the cap; above a lower one, leases run out by themselves."""
        self._limit = limit
        self._hand_out()

    def pause(self) -> None:
        """Gives no lease from now on; those given run out by themselves."""
        self._paused = True

    def resume(self) -> None:
        """Gives leases again."""
        self._paused = False
        self._hand_out()

    async def lease(self, *, first: bool = False) -> Lease:
        """Waits for a free place; `first` goes before all who wait, as a row does that was asked before."""
        if self._has_room and not self._waiting:
            self._leased += 1
            return Lease(self)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if first:
            self._waiting.appendleft(turn)
        else:
            self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._give_back()
            raise
        return Lease(self)

    @property
    def _has_room(self) -> bool:
        return not self._paused and self._leased < self._limit

    def _give_back(self) -> None:
        self._leased -= 1
        self._hand_out()

    def _hand_out(self) -> None:
        while self._waiting and self._has_room:
            turn = self._waiting.popleft()
            if not turn.done():
                self._leased += 1
                turn.set_result(None)
