"""How fast the servers are: what a request gets when so many are in flight, measured by answers that came."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from draftmill_jobs.generate.lengths import Array
from draftmill_jobs.generate.sharing import Evidence, all_laws
from draftmill_jobs.generate.speed import UNKNOWN, Speed, Steadiness, steadiness_of

_SHORTEST: Final = 300.0  # seconds that are looked back on,
_SHARE: Final = 0.25  # or this share of the time since it began, where that is more
_SAMPLES: Final = 1200  # of all that time, at most
_ANSWERS: Final = 8  # that tell a pace
_SHORTEST_STRETCH: Final = 20.0  # seconds into which the time is cut to see how steady the pace is
_MOST_STRETCHES: Final = 32
_NOW, _COUNT, _TOKENS, _IN_FLIGHT, _LAWS = 0, 1, 2, 3, 4  # columns of the history


@dataclass
class _Fresh:
    """Answers that came since the last sample: when they were sent, when they came, and their tokens."""

    sent: list[float] = field(default_factory=list)
    came: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)


class Pace:
    """Measures the speed over the last quarter of the time, but at least the last minutes.

    Tokens by seconds are the same for short answers and long ones, which share the servers; so it does not
    mislead here that the short ones ended first. The seconds are those of each law's clock (see `sharing`),
    so that answers which came while more or fewer requests were in flight can be compared.
    """

    def __init__(self) -> None:
        self._laws = all_laws()
        self._evidence = Evidence(self._laws)
        self._fresh = _Fresh()
        laws = len(self._laws.shared)
        self._clocks = slice(_LAWS, _LAWS + laws)
        self._spent = slice(_LAWS + laws, _LAWS + 2 * laws)
        self._history = np.zeros((_SAMPLES, _LAWS + 2 * laws))  # of sums since it began
        self._size, self._step = 0, 0.0

    def alone(self, tokens_per_second: float) -> None:
        """A request got so many tokens per second while no other was in flight."""
        self._evidence.alone(tokens_per_second)

    def answered(self, tokens: int, sent: float, came: float) -> None:
        """An answer came, sent and come at these monotonic seconds."""
        self._fresh.sent.append(sent)
        self._fresh.came.append(came)
        self._fresh.tokens.append(tokens)

    def sample(self, now: float, in_flight: int) -> None:
        """Takes note of the sums; called about once a second while requests are sent.

        Args:
            now: Monotonic seconds.
            in_flight: Requests in flight.
        """
        rate = np.zeros(self._history.shape[1])
        rate[_NOW], rate[_IN_FLIGHT] = 1.0, in_flight
        rate[self._clocks] = 1 / self._laws.slowdown(in_flight)
        if self._size == 0:
            self._history[1, _NOW] = now
            self._history[0] = self._history[1] - rate
            self._size = 2
            return
        if now <= self._history[self._size - 1, _NOW]:
            return
        row = self._history[self._size - 1] + rate * (now - self._history[self._size - 1, _NOW])
        if self._size > 2 and row[_NOW] - self._history[self._size - 2, _NOW] < self._step:
            self._size -= 1
        if self._size == _SAMPLES:
            self._history[: _SAMPLES // 2] = self._history[::2].copy()
            self._size = _SAMPLES // 2
            self._step = 2 * (row[_NOW] - self._history[0, _NOW]) / _SAMPLES
        self._history[self._size] = row
        self._size += 1
        self._take_in(in_flight)

    def _take_in(self, in_flight: int) -> None:
        """Adds the answers that came since the last sample to the sums of this one."""
        fresh, self._fresh = self._fresh, _Fresh()
        if not fresh.tokens:
            return
        clocks = self._history[: self._size, self._clocks]
        came, sent = (self._between(clocks, np.array(each)) for each in (fresh.came, fresh.sent))
        spent = (came - sent).sum(axis=0)
        count, tokens = len(fresh.tokens), float(sum(fresh.tokens))
        here = self._history[self._size - 1]
        here[_COUNT] += count
        here[_TOKENS] += tokens
        here[self._spent] += spent
        self._evidence.answered(in_flight, count, tokens, spent)

    def clear(self) -> None:
        """Nothing is sent for a while, which shall not count."""
        self._size, self._step = 0, 0.0
        self._history[:2] = 0.0
        self._fresh = _Fresh()

    def speed(self) -> Speed | None:
        """The speed now; None while too few answers have come."""
        if self._size == 0:
            return None
        window = self._window()
        sums = window[-1] - window[0]
        if sums[_COUNT] < _ANSWERS or sums[_TOKENS] <= 0 or (sums[self._spent] <= 0).any():
            return None
        in_flight = sums[_IN_FLIGHT] / sums[_NOW]
        if in_flight <= 0:
            return None
        weights = self._evidence.weights(in_flight)
        return Speed(
            in_flight=float(in_flight),
            laws=self._laws,
            weights=weights,
            alone=sums[_TOKENS] / sums[self._spent],
            seconds=float(sums[_NOW]),
            steadiness=self._steadiness(int(np.argmax(weights))),
        )

    def tokens_so_far(self, sent: Array, now: float) -> Array:
        """Tokens that requests sent at these moments have by now; 0 while it cannot be told."""
        speed = self.speed()
        if speed is None:
            return np.zeros_like(sent)
        tokens = self._history[: self._size, self._clocks] @ (speed.weights * speed.alone)
        so_far: Array = self._between(tokens, np.array([now])) - self._between(tokens, sent)
        return np.maximum(0.0, so_far)

    def _window(self) -> Array:
        """Samples of the time that is looked back on."""
        history = self._history[: self._size]
        now = history[-1, _NOW]
        start = now - max(_SHORTEST, _SHARE * (now - history[1, _NOW]))
        return history[max(1, int(np.searchsorted(history[:, _NOW], start, side="right")) - 1) :]

    def _between(self, values: Array, moments: Array) -> Array:
        """What such values of the samples were at these moments, or will be if nothing changes."""
        times = self._history[: self._size, _NOW]
        place = np.clip(np.searchsorted(times, moments) - 1, 0, self._size - 2)
        gone = (moments - times[place]) / (times[place + 1] - times[place])
        gone = gone.reshape(-1, *([1] * (values.ndim - 1)))
        between: Array = values[place] * (1 - gone) + values[place + 1] * gone
        return between

    def _steadiness(self, law: int) -> Steadiness:
        """From how the speed differed between stretches of all the time since it began."""
        history = self._history[1 : self._size]
        seconds = history[-1, _NOW] - history[0, _NOW]
        stretches = int(min(_MOST_STRETCHES, seconds / _SHORTEST_STRETCH))
        if stretches == 0:
            return UNKNOWN
        marks = history[0, _NOW] + seconds * np.arange(stretches) / stretches
        marked = np.append(np.searchsorted(history[:, _NOW], marks), len(history) - 1)
        sums = np.diff(history[marked], axis=0)
        spent = sums[:, self._spent.start + law]
        counted = (sums[:, _COUNT] >= _ANSWERS) & (spent > 0)
        return steadiness_of(sums[counted, _TOKENS] / spent[counted], seconds / stretches)
