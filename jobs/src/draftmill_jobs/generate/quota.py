"""`requestsPerMinute` and `tokensPerMinute`: when the next request may go, and what it is charged. Pure."""

from __future__ import annotations

import math
from typing import Final

_MINUTE: Final = 60.0  # seconds
_BURST: Final = 1.0  # seconds' worth that may go at once, after as long without any


class Rate:
    """The generic cell rate algorithm (ITU-T I.371, as a leaky bucket): units spread evenly over time.

    In no minute more than the minute's units and a second's worth of them begin. A request of many units goes
    when its first one may, and those after it wait for all of them.
    """

    def __init__(self, per_minute: float) -> None:
        """Takes the units of a minute, which need not be whole: a worker's part of the run's."""
        self._per_second = per_minute / _MINUTE
        self._level = 0.0  # units that went and have not drained yet
        self._since = -math.inf

    def change(self, per_minute: float, now: float) -> None:
        """Another rate is in force, also for what has not drained yet."""
        self._drain(now)
        self._per_second = per_minute / _MINUTE

    def wait(self, now: float) -> float:
        """Seconds until a request may go; `now` is in monotonic seconds."""
        self._drain(now)
        at_once = max(0.0, _BURST * self._per_second - 1.0)
        return max(0.0, self._level - at_once) / self._per_second

    def spend(self, units: float, now: float) -> None:
        """A request went; negative units are given back, of one that cost less than was spent for it."""
        self._drain(now)
        self._level = max(0.0, self._level + units)

    def _drain(self, now: float) -> None:
        self._level = max(0.0, self._level - (now - self._since) * self._per_second)
        self._since = now


class Quota:
    """What a worker may ask in a minute, over all servers.

    How long an answer gets is known when it is there. Until then a request is charged the mean of those
    before, of which the first is taken to be as long as an answer may be; then what it really took.
    """

    def __init__(self, requests: float | None, tokens: float | None, longest: int) -> None:
        """Takes the requests and tokens of a minute; None where they are not limited.

        Args:
            requests: Of this worker, probes included.
            tokens: Of this worker, prompts and answers.
            longest: Most tokens of an answer.
        """
        self._requests = Rate(requests) if requests is not None else None
        self._tokens = Rate(tokens) if tokens is not None else None
        self._seen, self._seen_tokens = 1, longest

    def change(self, requests: float | None, tokens: float | None, now: float) -> None:
        """Other limits are in force."""
        self._requests = _changed(self._requests, requests, now)
        self._tokens = _changed(self._tokens, tokens, now)

    def wait(self, now: float) -> float:
        """Seconds until another request may go; `now` is in monotonic seconds."""
        return max(
            (rate.wait(now) for rate in (self._requests, self._tokens) if rate is not None), default=0.0
        )

    def charge(self, now: float) -> float:
        """A request goes; returns the tokens that it is charged."""
        expected = self._seen_tokens / self._seen
        if self._requests is not None:
            self._requests.spend(1.0, now)
        if self._tokens is not None:
            self._tokens.spend(expected, now)
        return expected

    def settle(self, charged: float, tokens: int, now: float) -> None:
        """A request that was charged so many tokens took these, prompt and answer."""
        self._seen += 1
        self._seen_tokens += tokens
        if self._tokens is not None:
            self._tokens.spend(tokens - charged, now)


def _changed(rate: Rate | None, per_minute: float | None, now: float) -> Rate | None:
    if rate is None or per_minute is None:
        return None if per_minute is None else Rate(per_minute)
    rate.change(per_minute, now)
    return rate
