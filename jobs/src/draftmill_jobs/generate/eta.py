"""When it will be over: tokens left by tokens per second, and the last stragglers. Pure.

Rows left by rows per second mislead while the answers under way are longer than those that came. Tokens do
not: the model of lengths tells how many are left, the pace how many come in a second from servers that all
requests in flight share. Then the last answers end one by one, and what that takes comes on top.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from draftmill_jobs.generate.lengths import Array, LengthModel, Tokens
from draftmill_jobs.generate.speed import Speed

_QUANTILE: Final = 1.2816  # standard deviations on both sides of which 80 % lie
_STEPS: Final = 64  # of the last answers' lengths, denser where they are short


class Eta(NamedTuple):
    """Seconds to the end, and the limits between which the end lies with 80 % probability."""

    seconds: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Work:
    """What is left of a dataset.

    Attributes:
        model: Of its answers' lengths, with those under way.
        waiting: Rows that wait for their turn.
        tokens: Tokens of answers that its token budget still allows, those under way included; None without.
    """

    model: LengthModel
    waiting: int
    tokens: float | None = None


def remaining(works: Sequence[Work], speed: Speed) -> Eta:
    """How long all of it will take; zeros when nothing is left."""
    to_come = [_to_come(work) for work in works]
    tokens, waiting = [tokens for tokens, _ in to_come], [rows for _, rows in to_come]
    places = sum(work.model.under_way for work in works) or round(min(sum(waiting), speed.in_flight))
    if places == 0:
        return Eta(0.0, 0.0, 0.0)
    limit = max(work.model.limit for work in works)
    further = limit * np.linspace(0.0, 1.0, _STEPS) ** 2
    last = _last_under_way(works, waiting, places, further)
    before = max(0.0, sum(each.mean for each in tokens) - float(np.trapezoid(last, further)))
    pace = speed.per_token(float(places)) / places
    end, end_variance = _end(last, further, speed)
    seconds = before * pace + end
    if (seconds <= 0).any():
        return Eta(0.0, 0.0, 0.0)
    variance = sum(each.variance for each in tokens) * pace**2 + end_variance
    of_speed = speed.variance(float(speed.weights @ seconds))
    return _together(seconds, variance / seconds**2 + of_speed, speed.weights)


def _together(seconds: Array, variance: Array, weights: Array) -> Eta:
    """The median and the limits of log-normal laws that count so much, taken as one such law.

    Args:
        seconds: Mean of each [laws].
        variance: Of each, relative to the square of the mean [laws].
        weights: Of each [laws].
    """
    log_variance = np.log1p(variance)
    log_seconds = np.log(seconds) - log_variance / 2
    middle = float(weights @ log_seconds)
    spread = math.sqrt(float(weights @ (log_variance + (log_seconds - middle) ** 2)))
    return Eta(math.exp(middle), math.exp(middle - _QUANTILE * spread), math.exp(middle + _QUANTILE * spread))


def _to_come(work: Work) -> tuple[Tokens, float]:
    """Tokens that are still to come, and the rows that will be asked for them."""
    everything = work.model.to_come(work.waiting)
    if work.tokens is None:
        return everything, work.waiting
    under_way = work.model.to_come(0.0)
    rows = max(0.0, work.tokens - work.model.so_far - under_way.mean) / work.model.mean
    if rows >= work.waiting:
        return everything, work.waiting
    return Tokens(under_way.mean + rows * work.model.mean, under_way.variance), rows


def _last_under_way(works: Sequence[Work], waiting: Sequence[float], places: int, further: Array) -> Array:
    """How many are under way when the last row has been asked and each got so many further tokens.

    The last to be asked are those of the datasets with the shortest answers. As long as fewer rows wait than
    there are places, some of the answers that are under way now will be among the last.
    """
    under_way, free = np.zeros_like(further), float(places)
    for work, rows in sorted(zip(works, waiting, strict=True), key=lambda pair: pair[0].model.mean):
        taken = min(rows, free)
        free -= taken
        under_way += taken * work.model.residual_survival(further)
    for work in works:
        under_way += free / places * work.model.still_under_way(further)
    return under_way


def _end(under_way: Array, further: Array, speed: Speed) -> tuple[Array, Array]:
    """Seconds that the last answers take by each law of sharing, and their variance."""
    most = max(1.0, under_way[0])
    some = 1 - (1 - np.minimum(1.0, under_way / most)) ** most  # probability that any is still under way
    alive = np.maximum(1.0, under_way / np.maximum(some, 1e-12))
    seconds = np.trapezoid(some * speed.per_token(alive), further, axis=1)
    longest = float(np.trapezoid(some, further))
    chance = max(0.0, float(np.trapezoid(2 * further * some, further)) - longest**2)
    return seconds, chance * speed.per_token(1.0) ** 2
