"""A token bucket in front of the API server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class TokenBucket:
    """At most `rate` requests a second, `burst` at once; who comes too early waits its turn."""

    def __init__(
        self,
        rate: float,
        burst: int,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._sleep = sleep
        self._tokens = float(burst)
        self._seen = clock()

    async def take(self) -> None:
        """Return when one more request may be sent."""
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._seen) * self._rate)
        self._seen = now
        self._tokens -= 1
        if self._tokens < 0:
            await self._sleep(-self._tokens / self._rate)
