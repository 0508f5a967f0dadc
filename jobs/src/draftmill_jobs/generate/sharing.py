"""How much faster a request gets when fewer share the servers: laws, and how well each fits what was seen.

While the number of requests in flight stays what it is, nothing tells what becomes of the speed at the end
of a run, when they end one by one. So several laws are kept, each with the weight that it has earned. By a
law a token takes, with n requests in flight, (1 + s (n - 1))^g times as long as one of a request alone:

- g = 1 is a batch whose step takes a time of its own and a time for each request in it. It is Amdahl's law,
  as in Gunther's universal scalability law without its term for retrograde throughput ("A general theory of
  computational scalability based on rational functions", arXiv:0808.1431, 2008). With s = 0 nothing is
  shared, with s = 1 the servers make the same number of tokens whatever is in flight.
- g = 1/2 grows more at first than later, as when the requests of a batch share the experts that they need.

What was seen is compared on a clock for each law that runs slower while more requests share the servers: by
the right one every request gets equally many tokens in equal time, whatever was in flight meanwhile. Pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from draftmill_jobs.generate.lengths import Array

_BATCH: Final = (0.0, *(10 ** (i / 4 - 4) for i in range(17)))  # values of s where g is 1,
_EXPERTS: Final = tuple(10 ** (i / 2 - 3) for i in range(7))  # and where it is 1/2
_USUAL_ALONE: Final = 5.0  # times as fast a request is alone: at a server's knee, where a tenth more requests
_ALONE_DOUBT: Final = 1.2  # bring a fiftieth more tokens; give or take so many natural logarithms
_NOTHING_SHARED: Final = 0.1  # probability that a request alone is no faster
_NEGLIGIBLE: Final = 1e-3  # weight of a law that is left out
_LEVELS: Final = 24  # of requests in flight, two an octave
_LEVEL_DOUBT: Final = 0.05  # relative; servers are not equally fast at all times
_ANSWER_DOUBT: Final = 0.3  # relative, of the speed that one answer shows
_ALONE_MEASURED_DOUBT: Final = 0.1  # relative, of the few tokens of a request that was alone


@dataclass(frozen=True)
class Laws:
    """Laws of sharing, side by side.

    Attributes:
        shared: The s of each [laws].
        power: Its g [laws].
    """

    shared: Array
    power: Array

    def slowdown(self, in_flight: Array | float) -> Array:
        """Times as long as alone that a token takes with so many requests in flight [laws, ...]."""
        count = np.maximum(1.0, np.asarray(in_flight, dtype=np.float64))
        axes = (slice(None), *([None] * count.ndim))
        slowed: Array = (1.0 + self.shared[axes] * (count - 1.0)) ** self.power[axes]
        return slowed

    def prior(self, in_flight: float) -> Array:
        """How likely each is before anything was seen: by how much faster a request would be alone."""
        alone = np.log(self.slowdown(max(2.0, in_flight)))
        weights = np.exp(-np.abs(alone - math.log(_USUAL_ALONE)) / _ALONE_DOUBT)
        for power in np.unique(self.power):  # laws that hardly differ count as one
            here = self.power == power
            weights[here] *= np.gradient(alone[here])
        weights *= (1 - _NOTHING_SHARED) / weights.sum()
        weights[self.shared == 0] += _NOTHING_SHARED
        return weights


@lru_cache(maxsize=1)
def all_laws() -> Laws:
    """Those that are kept."""
    power = np.repeat([1.0, 0.5], [len(_BATCH), len(_EXPERTS)])
    return Laws(np.array(_BATCH + _EXPERTS), power)


class Evidence:
    """What was seen with more requests in flight and with fewer, and which laws it speaks for."""

    def __init__(self, laws: Laws) -> None:
        self._laws = laws
        self._answers, self._tokens = np.zeros(_LEVELS), np.zeros(_LEVELS)
        self._seconds = np.zeros((_LEVELS, len(laws.shared)))
        self._alone = 0.0

    def alone(self, tokens_per_second: float) -> None:
        """A request that was alone got so many tokens per second; the fastest of them counts."""
        self._alone = max(self._alone, tokens_per_second)

    def answered(self, in_flight: float, answers: int, tokens: float, seconds: Array) -> None:
        """Answers came while so many requests were in flight, after so many seconds by each law's clock."""
        level = min(_LEVELS - 1, round(2 * math.log2(max(1.0, in_flight))))
        self._answers[level] += answers
        self._tokens[level] += tokens
        self._seconds[level] += seconds

    def weights(self, in_flight: float) -> Array:
        """How likely each law is, from all that was seen; negligible ones are 0 [laws]."""
        seen = (self._tokens > 0) & (self._seconds > 0).all(axis=1)
        speeds = np.log(self._tokens[seen, None] / self._seconds[seen])
        precision = 1 / (_LEVEL_DOUBT**2 + _ANSWER_DOUBT**2 / self._answers[seen])
        if self._alone > 0:
            speeds = np.vstack((speeds, np.full(speeds.shape[1:], math.log(self._alone))))
            precision = np.append(precision, 1 / _ALONE_MEASURED_DOUBT**2)
        log_weights = np.log(self._laws.prior(in_flight) + 1e-300)
        if len(speeds):
            mean = precision @ speeds / precision.sum()
            log_weights -= precision @ (speeds - mean) ** 2 / 2
        weights: Array = np.exp(log_weights - log_weights.max())
        weights[weights < _NEGLIGIBLE * weights.sum()] = 0.0
        weights /= weights.sum()
        return weights
