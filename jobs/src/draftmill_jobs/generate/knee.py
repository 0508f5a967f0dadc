"""`concurrency: Auto`: the knee, from which on more requests in flight bring no more tokens. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, stdev
from typing import Final

START: Final = 8
"""Requests in flight at each server at first."""
MOST: Final = 2048
"""More requests at once than any server was found to make use of."""
_STEP: Final = 1.5  # from one level to the next
_GAIN: Final = 0.03  # a rise below which more requests in flight bring no more tokens
_SETTLE: Final = 2.0  # seconds after a change that are not measured
_FEWEST, _MOST_SAMPLES = 5, 12  # rates of which a level's is the mean
_PRECISE: Final = 0.03  # standard error of the mean, relative to it, that is enough
_FILLED: Final = 0.9  # of the limit that must be in flight, for it to be what is measured
_QUEUED: Final = 0.1  # of the running requests that wait at the servers, from which on they have no place
_BACK: Final = 0.9  # of the limit that is left when servers preempt
_REFUSALS: Final = 3  # times that servers refuse some at one limit: no passing lack of room


@dataclass(frozen=True, slots=True)
class Sample:
    """What is seen at one moment, of all servers together.

    Attributes:
        now: Monotonic seconds.
        in_flight: Requests of ours.
        generated: Tokens that the servers have generated so far.
        running: Requests that the servers work on; None when they do not tell.
        waiting: Requests in their queues.
        preemptions: How often they took a request's memory for another one so far.
        cuts: How often their gates were cut so far, for they refused requests.
    """

    now: float
    in_flight: int
    generated: float
    running: float | None = None
    waiting: float = 0.0
    preemptions: float = 0.0
    cuts: int = 0


class Knee:
    """Steps up while the tokens per second grow by more than a few percent, and than they vary; then stays.

    It stays, too, where the servers queue what they are given, preempt, or refuse it time and again; and goes
    back when they preempt later, as when answers turn out longer than they were at first.

    Attributes:
        limit: Most requests in flight at once, now.
        settled: It no longer looks for more.
        reason: Why the limit is what it is, in a sentence.
    """

    def __init__(self, start: int, most: int) -> None:
        """Begins with so many requests, and never goes beyond the most."""
        self._most = most
        self.limit = min(start, most)
        self.settled = False
        self.reason = f"measuring {self.limit} in flight"
        self._best: tuple[float, int] | None = None  # tokens per second, and the limit that brought them
        self._now = self._changed = -math.inf
        self._samples: list[Sample] = []
        self._cuts: int | None = None  # at the look before
        self._refusals = 0  # looks at which there were more of them, since the limit was changed
        self._held: list[int] = []  # in flight at each look since the limit was changed

    def observe(self, sample: Sample) -> None:
        """Takes in what is seen now, about once a second."""
        if sample.now <= self._now:
            return
        self._now = sample.now
        self._look_for_refusals(sample)
        if self._changed == -math.inf:
            self._changed = sample.now
        if sample.now < self._changed + _SETTLE:
            return
        before = self._samples[-1] if self._samples else None
        is_another = before is not None and sample.generated < before.generated  # a server started anew
        if sample.in_flight < _FILLED * self.limit or is_another:
            self._samples.clear()
            return
        self._samples.append(sample)
        if self.settled:
            self._go_back_if_preempted()
        elif len(self._samples) > _FEWEST:
            self._judge()

    def _look_for_refusals(self, sample: Sample) -> None:
        """Stays at what the servers take: one that their refusals keep from being filled is no limit."""
        if self.settled:
            return
        self._held.append(sample.in_flight)
        self._refusals += self._cuts is not None and sample.cuts > self._cuts
        self._cuts = sample.cuts
        if self._refusals >= _REFUSALS:
            took = math.floor(fmean(self._held))
            measured = self._best[1] if self._best else 1
            refused = f"refused requests {self._refusals} times while {self.limit} were to be in flight"
            limit = min(self.limit, max(measured, took))
            self._stay(limit, f"the servers {refused}, and took {took} on average")

    def _judge(self) -> None:
        rates = _rates(self._samples)
        rate = fmean(rates)
        error = stdev(rates) / math.sqrt(len(rates))
        if error > _PRECISE * rate and len(rates) < _MOST_SAMPLES:
            return
        said = f"{self.limit} in flight gave {rate:.0f} tokens/s"
        best = self._best
        first, last = self._samples[0], self._samples[-1]
        if last.preemptions > first.preemptions:
            self._stay(
                best[1] if best else math.ceil(_BACK * self.limit), f"{said}, and the servers preempted"
            )
        elif best is not None and rate <= best[0] + max(_GAIN * best[0], error):
            self._stay(best[1], f"{said}, {best[1]} gave {best[0]:.0f}: more in flight brings no more")
        elif (places := self._places()) is not None:
            self._stay(places, f"the servers work on {places} at once, and queue what goes beyond")
        elif self.limit >= self._most:
            self._stay(self.limit, f"{said}, and no more may be")
        else:
            self._best = (rate, self.limit)
            self._change(min(self._most, math.ceil(_STEP * self.limit)))
            self.reason = f"{said}: measuring {self.limit}"

    def _places(self) -> int | None:
        """How many requests the servers work on at once, where they queue the others."""
        running = [sample.running for sample in self._samples if sample.running is not None]
        if not running:
            return None
        waiting = fmean(sample.waiting for sample in self._samples)
        if waiting <= max(1.0, _QUEUED * fmean(running)):
            return None
        return min(self.limit, max(1, math.ceil(fmean(running)) + 1))

    def _go_back_if_preempted(self) -> None:
        first, last = self._samples[0], self._samples[-1]
        if last.preemptions > first.preemptions:
            count = last.preemptions - first.preemptions
            why = f"the servers preempted {count:.0f} requests with {self.limit} in flight"
            self._stay(max(1, math.floor(_BACK * self.limit)), why)
        del self._samples[:-_MOST_SAMPLES]

    def _stay(self, limit: int, reason: str) -> None:
        self.settled, self.reason = True, reason
        self._change(limit)

    def _change(self, limit: int) -> None:
        self.limit = limit
        self._changed = self._now
        self._samples.clear()
        self._held.clear()
        self._refusals = 0


def _rates(samples: list[Sample]) -> list[float]:
    """Tokens per second between each two samples."""
    return [
        (after.generated - before.generated) / (after.now - before.now) for before, after in pairwise(samples)
    ]
