"""A server that shares its speed among the requests in flight, played without time passing.

All requests in flight advance token by token together. A step takes a time of its own and a time for each
request, as a batch does on a GPU: full, the server makes `tokens_per_second`; a request that is alone is
`alone` times as fast as one in a full batch. With `alone` infinite it gets all that the others had.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

Row = TypeVar("Row")


@dataclass(frozen=True)
class PlayedServer:
    """What the server can do.

    Attributes:
        places: Requests in flight when it is full.
        tokens_per_second: Of all requests together when it is full.
        alone: How many times as fast a request is that is alone.
    """

    places: int
    tokens_per_second: float
    alone: float

    def step(self, in_flight: int) -> float:
        """Seconds in which each of so many requests gets a token."""
        own = 1 / self.alone
        return (own + (1 - own) * in_flight / self.places) * self.places / self.tokens_per_second


@dataclass
class Play(Generic[Row]):
    """One run on such a server.

    Attributes:
        take: The next row and the tokens of its answer; None when there is none now.
        sent: Called when a row is sent, with the time in seconds.
        ended: Called when its answer has come, with the time and the tokens.
        now: Seconds since the beginning.
        idle: Places that were empty, times seconds.
    """

    server: PlayedServer
    take: Callable[[], tuple[Row, int] | None]
    sent: Callable[[Row, float], None] = lambda _row, _now: None
    ended: Callable[[Row, float, int], None] = lambda _row, _now, _tokens: None
    now: float = 0.0
    idle: float = 0.0

    def run(self, moments: list[float], look: Callable[[float], None]) -> None:
        """Until every answer has come; calls `look` at the moments, which are in order."""
        steps, number, in_flight = 0.0, 0, list[tuple[float, int, Row, int]]()
        coming = iter([*moments, float("inf")])
        moment = next(coming)
        while True:
            while len(in_flight) < self.server.places and (taken := self.take()) is not None:
                row, tokens = taken
                heapq.heappush(in_flight, (steps + tokens, number, row, tokens))
                number += 1
                self.sent(row, self.now)
            if not in_flight:
                return
            end, _, row, tokens = heapq.heappop(in_flight)
            step = self.server.step(len(in_flight) + 1)
            then = self.now + (end - steps) * step
            while moment <= then:
                look(moment)
                moment = next(coming)
            self.idle += (self.server.places - len(in_flight) - 1) * (then - self.now)
            self.now, steps = then, end
            self.ended(row, self.now, tokens)
