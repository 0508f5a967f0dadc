"""How long answers become: a distribution learned from those that ended and from those still under way.

Short answers end first, so those that have ended are too short to stand for all. Those under way are longer
than what they have by now: they are censored. Tokens of an answer are cut into bins, and what is estimated of
each bin is its hazard: the probability that an answer which comes so far ends there. Hazards take censored
answers without bias and fit two humps as well as one. This is the life table with a prior (Hjort,
"Nonparametric Bayes estimators based on beta processes in models for life history data", Annals of
Statistics 18, 1990).

The prior of a hazard is worth `_WORTH` answers and follows a log-normal law, as the lengths of answers do
more or less. It speaks where no answer has been yet; early on that is in the tail, which a plain life table
takes for empty. Answers in two humps follow one law below some length and another one from there on. How much
each pair of a grid of such laws counts is decided by how well it foretells what has been seen (its
beta-binomial evidence); what the first law says is averaged for each length at which it ends. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from draftmill_jobs.shared.lengths import EDGES, Lengths

Array: TypeAlias = npt.NDArray[np.float64]

_WORTH: Final = 5.0  # answers that a prior hazard is worth
_TAIL_DOUBT: Final = 0.35  # share by which tokens of which the prior alone speaks may be off
_SMALLEST_MEDIAN: Final = 16.0  # tokens; the laws' medians go from here to
_LARGEST_MEDIAN: Final = 1.5  # times the limit,
_MEDIANS: Final = 24  # in so many steps
_USUAL_MEDIAN: Final = 1 / 8  # of the limit,
_MEDIAN_DOUBT: Final = 1.5  # give or take so many natural logarithms
_SPREADS: Final = (0.35, 0.5, 0.7, 0.9, 1.15, 1.5, 2.0)  # the laws' standard deviations of the logarithm
_USUAL_SPREAD: Final = 0.7
_SPREAD_DOUBT: Final = 0.5  # natural logarithms
_STARTS: Final = 4  # bins between two lengths from which on a law may hold: one octave
_TWO: Final = 0.5  # probability that another law holds of long answers than of short ones
_NEGLIGIBLE: Final = 1e-3  # weight of a law that is left out
_LEAST_HAZARD: Final = 1e-6


class Tokens(NamedTuple):
    """An estimate of a number of tokens."""

    mean: float
    variance: float


class LengthModel:
    """What is known of the lengths of a dataset's answers at one moment.

    Args:
        ended: Lengths of the answers that have come.
        limit: Tokens at which an answer is cut off.
        under_way: Tokens that each answer under way has by now.
    """

    def __init__(self, ended: Lengths, limit: int, under_way: Array) -> None:
        laws = _laws(limit)
        self.limit = limit
        self._edges, self._widths = laws.edges, np.diff(laws.edges)
        bins = len(self._widths)
        self._now = np.clip(under_way, 0.0, limit * (1 - 1e-9))
        place = np.searchsorted(self._edges, self._now, side="right") - 1
        gone = (self._now - self._edges[place]) / self._widths[place]
        self._under_way = np.bincount(place, minlength=bins).astype(float)
        self._to_go = self._under_way - np.bincount(place, weights=gone, minlength=bins)
        counts, tokens = _up_to(bins, ended.counts), _up_to(bins, ended.tokens)
        self._reached = _from_here_on(counts) + _from_here_on(self._under_way) - self._to_go
        self._part = ((tokens - counts * self._edges[:-1]) / self._widths + 1.0) / (counts + 2.0)
        self._weights, self._hazards = self._posterior(laws, counts)
        self._ahead = self._tokens_ahead()

    @property
    def under_way(self) -> int:
        """Answers under way."""
        return len(self._now)

    @property
    def so_far(self) -> float:
        """Tokens that the answers under way have by now, all together."""
        return float(self._now.sum())

    @property
    def mean(self) -> float:
        """Expected tokens of an answer."""
        return float(self._weights @ self._ahead[:, 0])

    def to_come(self, waiting: float) -> Tokens:
        """Tokens that the answers under way and so many waiting rows are still going to have, all together.

        The variance is that of chance, of hazards that few answers have shown, and of what lies beyond these.
        """
        alive = np.full(len(self._weights), float(waiting))
        mean, variance, unseen = (np.zeros_like(alive) for _ in range(3))
        for i, width in enumerate(self._widths):
            hazard, part = self._hazards[:, i], self._part[i]
            rest = (
                self._to_go[i] / self._under_way[i] if self._under_way[i] else 0.0
            )  # of the bin, on average
            tokens = width * (
                alive * (1 - hazard * (1 - part)) + self._to_go[i] * (1 - hazard * rest * (1 - part))
            )
            mean += tokens
            unseen += tokens * _WORTH / (self._reached[i] + _WORTH)
            coming = alive + self._to_go[i]
            at_stake = (width * (1 - part) + self._ahead[:, i + 1]) ** 2 * hazard * (1 - hazard)
            variance += at_stake * (coming + coming**2 / (self._reached[i] + _WORTH + 1))
            alive = alive * (1 - hazard) + self._under_way[i] * (1 - hazard) ** rest
        variance += (_TAIL_DOUBT * unseen) ** 2
        together = float(self._weights @ mean)
        return Tokens(together, float(self._weights @ (variance + mean**2)) - together**2)

    def expected_length(self, so_far: Array) -> Array:
        """Tokens that answers will have which have so many by now."""
        ahead: Array = np.interp(so_far, self._edges, self._weights @ self._ahead)
        return so_far + ahead

    def still_under_way(self, further: Array) -> Array:
        """How many of the answers under way will be so still when each has so many further tokens."""
        bins = self._under_way > 0
        count = self._under_way[bins]
        now = self._edges[:-1][bins] + self._widths[bins] * (1 - self._to_go[bins] / count)  # on average
        alive = self._survival_at(now[:, None] + further) / self._survival_at(now)[:, None]
        still: Array = count @ alive
        return still

    def residual_survival(self, further: Array) -> Array:
        """Of a stream of answers, seen at any moment: the share that has more than so many tokens to come.

        An answer is met in proportion to its length, anywhere in it (renewal theory), so this is the share of
        the area under the survival curve that lies beyond.
        """
        area = np.cumsum(self._widths * (self._survival[:-1] + self._survival[1:]) / 2)
        beyond: Array = 1 - np.interp(further, self._edges, np.concatenate(([0.0], area))) / area[-1]
        return beyond

    @cached_property
    def _survival(self) -> Array:
        """The share of answers that come to each edge [bins + 1]."""
        hazards = self._weights @ self._hazards
        return np.concatenate(([1.0], np.cumprod(1 - hazards)))

    def _survival_at(self, tokens: Array) -> Array:
        return np.interp(tokens, self._edges, self._survival)

    def _posterior(self, laws: _Laws, counts: Array) -> tuple[Array, Array]:
        """Weights of pairs of laws, but negligible ones, [pairs] and hazards by each [pairs, bins]."""
        ends, goes_on = counts + laws.ends, self._reached - counts + laws.goes_on
        evidence = laws.log_normaliser + _log_gamma(ends) + _log_gamma(goes_on)
        evidence -= _log_gamma(self._reached + _WORTH)
        evidence[:, -1] = 0.0  # at the limit every answer ends
        hazards = ends / (ends + goes_on)
        hazards[:, -1] = 1.0
        up_to = np.hstack((np.zeros((len(evidence), 1)), np.cumsum(evidence, axis=1)))
        before = laws.log_prior[:, None] + up_to[:, laws.starts]
        together = np.logaddexp.reduce(before, axis=0)  # whichever law the short answers follow
        short = np.exp(before - together).T @ hazards  # [starts, bins]
        after = laws.log_prior[:, None] + up_to[:, -1:] - up_to[:, laws.starts]
        weights = after + together + laws.log_start
        weights = np.exp(weights - weights.max())
        law, start = np.nonzero(weights > _NEGLIGIBLE * weights.sum())
        kept = weights[law, start]
        is_long = np.arange(len(counts)) >= laws.starts[start][:, None]
        return kept / kept.sum(), np.where(is_long, hazards[law], short[start])

    def _tokens_ahead(self) -> Array:
        """Expected tokens still to come at each edge, by each law [laws, bins + 1]."""
        ahead = np.zeros((len(self._weights), len(self._edges)))
        for i in range(len(self._widths) - 1, -1, -1):
            hazard = self._hazards[:, i]
            here = self._widths[i] * (1 - hazard * (1 - self._part[i]))
            ahead[:, i] = here + (1 - hazard) * ahead[:, i + 1]
        return ahead


@dataclass(frozen=True, slots=True)
class _Laws:
    """Log-normal laws up to a limit.

    Attributes:
        edges: Of the bins, the limit being the last [bins + 1].
        starts: Bins from which on a law of the long answers may hold; 0 where one law holds of all.
        ends: Prior answers that end in each bin [laws, bins].
        goes_on: Prior answers that go on beyond it [laws, bins].
        log_prior: How likely each law is before any answer [laws].
        log_start: How likely it is that the second law begins there [starts].
        log_normaliser: Of the beta distribution of each hazard [laws, bins].
    """

    edges: Array
    starts: npt.NDArray[np.int64]
    ends: Array
    goes_on: Array
    log_prior: Array
    log_start: Array
    log_normaliser: Array


@lru_cache(maxsize=64)
def _laws(limit: int) -> _Laws:
    edges = np.array([*(edge for edge in EDGES if edge < limit), float(limit)])
    smallest, largest = math.log(min(_SMALLEST_MEDIAN, limit)), math.log(_LARGEST_MEDIAN * limit)
    medians, spreads = (
        axis.reshape(-1, 1)
        for axis in np.meshgrid(np.linspace(smallest, largest, _MEDIANS), _SPREADS, indexing="ij")
    )
    distance = (np.log(edges[1:]) - medians) / spreads  # in standard deviations
    survival = np.vectorize(lambda z: 0.5 * math.erfc(z / math.sqrt(2)))(distance)
    survival = np.hstack([np.ones_like(medians), survival])
    hazards = 1 - survival[:, 1:] / np.maximum(survival[:, :-1], 1e-300)
    hazards = np.clip(hazards, _LEAST_HAZARD, 1 - _LEAST_HAZARD)
    log_prior = -0.5 * ((medians - math.log(_USUAL_MEDIAN * limit)) / _MEDIAN_DOUBT) ** 2
    log_prior -= 0.5 * (np.log(spreads / _USUAL_SPREAD) / _SPREAD_DOUBT) ** 2
    log_prior = log_prior[:, 0] - math.log(np.exp(log_prior).sum())
    starts = np.arange(0, len(edges) - 1, _STARTS)
    log_start = np.where(starts == 0, 1 - _TWO, _TWO / max(1, len(starts) - 1))
    ends, goes_on = _WORTH * hazards, _WORTH * (1 - hazards)
    return _Laws(
        edges=edges,
        starts=starts,
        ends=ends,
        goes_on=goes_on,
        log_prior=log_prior,
        log_start=np.log(log_start),
        log_normaliser=-_log_gamma(ends) - _log_gamma(goes_on),
    )


def _up_to(bins: int, histogram: Sequence[int]) -> Array:
    """The first bins of a histogram; what lies beyond counts in the last of them."""
    return np.array([*histogram[: bins - 1], sum(histogram[bins - 1 :])], dtype=np.float64)


def _from_here_on(counts: Array) -> Array:
    return np.cumsum(counts[::-1])[::-1]


def _log_gamma(x: Array) -> Array:
    """The logarithm of the gamma function of positive numbers, to 1e-9: Stirling's series beyond 7."""
    product = x * (x + 1) * (x + 2) * (x + 3) * (x + 4) * (x + 5) * (x + 6)
    y = x + 7
    series = 1 / (12 * y) - 1 / (360 * y**3) + 1 / (1260 * y**5)
    return (y - 0.5) * np.log(y) - y + 0.5 * math.log(2 * math.pi) + series - np.log(product)
