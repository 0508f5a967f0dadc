"""A server that shares its speed among the requests in flight, played without time passing.

All requests in flight advance token by token together: full, the server makes `tokens_per_second`; how long a
step takes with fewer requests is a law of its own.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

Row = TypeVar("Row")


StepTime: TypeAlias = Callable[[float], float]
Swing: TypeAlias = Callable[[float], float]
_SWING_STEP = 30.0  # seconds


def batch(alone: float) -> StepTime:
    """Steps that take a time of their own and a time for each request, as those of a GPU do.

    Args:
        alone: How many times as fast a request is that is alone.
    """
    own = 1 / alone
    return lambda filled: own + (1 - own) * filled


def power(exponent: float) -> StepTime:
    """Steps with which tokens per second are as this power of the requests in flight.

    Args:
        exponent: 0 where a request gets all that others had, 1 where it gets nothing of it.
    """
    return lambda filled: filled ** (1 - exponent)


def steady(_: float) -> float:
    """A server that is as fast at all times."""
    return 1.0


def swinging(seed: int, deviation: float, memory: float) -> Swing:
    """A server that is now faster and now slower, by chance: noise of the first order, log-normal.

    Args:
        seed: Of the chance.
        deviation: Standard deviation of the logarithm of a step's time.
        memory: Seconds after which a deviation has fallen to 1/e, on average.
    """
    rng, like = random.Random(seed), math.exp(-_SWING_STEP / memory)
    logarithms = [rng.gauss(0, 1)]

    def slowness(now: float) -> float:
        step = int(now / _SWING_STEP)
        while len(logarithms) <= step:
            logarithms.append(like * logarithms[-1] + math.sqrt(1 - like**2) * rng.gauss(0, 1))
        return math.exp(deviation * logarithms[step])

    return slowness


@dataclass(frozen=True)
class PlayedServer:
    """What the server can do.

    Attributes:
        places: Requests in flight when it is full.
        tokens_per_second: Of all requests together when it is full.
        step_time: Of a step, beside one of a full server, when such a share of the places is filled.
        swing: How many times as slow it is at such a moment, in seconds, as it should be.
    """

    places: int
    tokens_per_second: float
    step_time: StepTime
    swing: Swing = steady

    def step(self, in_flight: int, now: float) -> float:
        """Seconds in which each of so many requests gets a token."""
        full = self.places / self.tokens_per_second
        return full * self.step_time(in_flight / self.places) * self.swing(now)


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
            step = self.server.step(len(in_flight) + 1, self.now)
            then = self.now + (end - steps) * step
            while moment <= then:
                look(moment)
                moment = next(coming)
            self.idle += (self.server.places - len(in_flight) - 1) * (then - self.now)
            self.now, steps = then, end
            self.ended(row, self.now, tokens)
