"""How fast requests are answered, and how sure that is. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from draftmill_jobs.generate.lengths import Array
from draftmill_jobs.generate.sharing import Laws

_FEWEST: Final = 6  # stretches that tell how steady a speed is
_LEAST_SWING: Final = 0.005
_USUAL_LIKENESS: Final = 0.8  # correlation of a stretch with the next one,
_LIKENESS_WORTH: Final = 8  # and as if so many stretches had shown it
_MOST_ALIKE: Final = 0.9


@dataclass(frozen=True, slots=True)
class Steadiness:
    """How much a speed differs from time to time.

    Attributes:
        swing: Standard deviation, relative to the mean.
        memory: Seconds in which it forgets what it was: its integrated autocorrelation time.
    """

    swing: float
    memory: float

    def variance(self, seconds: float) -> float:
        """Of the mean over so many seconds, relative to the square of the mean."""
        return self.swing**2 * (1.0 if math.isinf(self.memory) else self.memory / (self.memory + seconds))


UNKNOWN: Final = Steadiness(0.1, math.inf)


def steadiness_of(speeds: Array, seconds: float) -> Steadiness:
    """How steady a speed is that was measured in stretches of so many seconds each.

    The memory is that of a process in which each stretch is like the one before and otherwise by chance, the
    likeness being their correlation. From n stretches it comes out too small by (1 + 3 likeness) / n on
    average (Kendall, "Note on bias in the estimation of autocorrelation", Biometrika 41, 1954).
    """
    count = len(speeds)
    if count < _FEWEST:
        return UNKNOWN
    deviations = speeds / speeds.mean() - 1
    variance = float(deviations @ deviations) / (count - 1)
    if variance < _LEAST_SWING**2:
        return Steadiness(_LEAST_SWING, math.inf)
    likeness = float(deviations[1:] @ deviations[:-1]) / (variance * (count - 1))
    likeness += (1 + 3 * likeness) / count
    likeness = (likeness * count + _USUAL_LIKENESS * _LIKENESS_WORTH) / (count + _LIKENESS_WORTH)
    likeness = min(_MOST_ALIKE, max(0.0, likeness))
    return Steadiness(math.sqrt(variance), seconds * (1 + likeness) / (1 - likeness))


@dataclass(frozen=True, eq=False)
class Speed:
    """How fast requests are answered.

    Attributes:
        in_flight: Requests in flight meanwhile, on average.
        laws: By which requests may share the servers.
        weights: How likely each is [laws].
        alone: Tokens per second that a request alone would get by each [laws].
        seconds: For which it was measured.
        steadiness: How much it differs from time to time.
    """

    in_flight: float
    laws: Laws
    weights: Array
    alone: Array
    seconds: float
    steadiness: Steadiness

    def per_token(self, in_flight: Array | float) -> Array:
        """Seconds that a token of a request takes with so many in flight, by each law [laws, ...]."""
        slowdown = self.laws.slowdown(in_flight)
        return slowdown / self.alone.reshape(-1, *([1] * (slowdown.ndim - 1)))

    def variance(self, seconds: float) -> float:
        """Of the mean speed of so many seconds to come, relative to its square."""
        return self.steadiness.variance(self.seconds) + self.steadiness.variance(seconds)

    @cached_property
    def each(self) -> float:
        """Tokens per second of one request."""
        return float(self.weights @ (1 / self.per_token(self.in_flight)))
