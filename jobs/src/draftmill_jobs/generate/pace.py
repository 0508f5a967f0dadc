"""How fast the servers are: what one request and all together get, measured by answers that came."""

from __future__ import annotations

import math
import statistics
from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

_SHORTEST: Final = 300.0  # seconds that are looked back on,
_SHARE: Final = 0.25  # or this share of the time since it began, where that is more
_SAMPLES: Final = 600  # of that time, at most
_ANSWERS: Final = 8  # that tell a pace
_STRETCHES: Final = 8  # into which the time is cut to see how steady the pace is
_UNKNOWN_DOUBT: Final = 0.1  # relative, until there are enough of them
_LEAST_DOUBT: Final = 0.01  # relative
_ALONE: Final = 5.0  # how many times as fast a request is alone


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast requests are answered.

    Attributes:
        each: Tokens per second of one request.
        in_flight: Requests in flight meanwhile, on average.
        doubt: Relative standard deviation of the mean that is to come.
    """

    each: float
    in_flight: float
    doubt: float

    def per_token(self, in_flight: float) -> float:
        """Seconds that a token of a request takes when so many are in flight.

        A step of a server takes a time of its own and a time for each request of the batch. So requests share
        what a server can do, and one that is left alone gets more of it, but not all: `_ALONE` times what it
        had. (At the knee of a server's throughput, where a tenth more requests bring a fiftieth more tokens,
        it is five times.)
        """
        own = 1 / _ALONE
        return (own + (1 - own) * in_flight / self.in_flight) / self.each


class _Sample(NamedTuple):
    """Sums since the beginning."""

    now: float
    answers: int
    tokens: int
    seconds: float  # of the answers
    in_flight: float  # times seconds


class Pace:
    """Measures the speed over the last quarter of the time, but at least the last minutes.

    Tokens by seconds are the same for short answers and long ones, which share the servers; so it does not
    mislead here that the short ones ended first.
    """

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque()
        self._began: float | None = None
        self._sums = _Sample(0.0, 0, 0, 0.0, 0.0)

    def answered(self, tokens: int, seconds: float) -> None:
        """An answer came."""
        now, answers, all_tokens, all_seconds, in_flight = self._sums
        self._sums = _Sample(now, answers + 1, all_tokens + tokens, all_seconds + seconds, in_flight)

    def sample(self, now: float, in_flight: int) -> None:
        """Takes note of the sums; called about once a second while requests are sent.

        Args:
            now: Monotonic seconds.
            in_flight: Requests in flight.
        """
        if self._began is None:
            self._began = now
            self._sums = self._sums._replace(now=now)
            self._samples.append(self._sums)
            return
        before = self._sums
        self._sums = before._replace(now=now, in_flight=before.in_flight + in_flight * (now - before.now))
        window = max(_SHORTEST, _SHARE * (now - self._began))
        if now - self._samples[-1].now >= window / _SAMPLES:
            self._samples.append(self._sums)
        while len(self._samples) > 1 and now - self._samples[1].now >= window:
            self._samples.popleft()

    def clear(self) -> None:
        """Nothing is sent for a while, which shall not count."""
        self._samples.clear()
        self._began = None

    def speed(self) -> Speed | None:
        """The speed now; None while too few answers have come."""
        if not self._samples:
            return None
        first, last = self._samples[0], self._sums
        if last.answers - first.answers < _ANSWERS or last.seconds <= first.seconds or last.now <= first.now:
            return None
        each = (last.tokens - first.tokens) / (last.seconds - first.seconds)
        in_flight = (last.in_flight - first.in_flight) / (last.now - first.now)
        return Speed(each, in_flight, self._doubt()) if each > 0 and in_flight > 0 else None

    def _doubt(self) -> float:
        """From how the speed differed between stretches of the time looked back on."""
        step = max(1, len(self._samples) // _STRETCHES)
        marks = [*list(self._samples)[::step], self._sums]
        speeds = [
            (later.tokens - earlier.tokens) / (later.seconds - earlier.seconds)
            for earlier, later in pairwise(marks)
            if later.answers - earlier.answers >= _ANSWERS and later.seconds > earlier.seconds
        ]
        if len(speeds) < _STRETCHES // 2:
            return _UNKNOWN_DOUBT
        spread = statistics.stdev(speeds) / statistics.fmean(speeds)
        return max(_LEAST_DOUBT, spread * math.sqrt(2 / len(speeds)))  # of what was, and of what will be
