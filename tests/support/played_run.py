"""A run of one dataset on a played server, and what the generator foretells of its end at several moments."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from draftmill_api.record import RecordStatus
from draftmill_jobs.generate.eta import Eta
from draftmill_jobs.generate.outlook import Course, Outlook
from draftmill_jobs.generate.pace import Pace
from draftmill_jobs.shared.tally import Tally
from tests.support import case_study
from tests.support.case_study import LIMIT, log_normal
from tests.support.played_server import Play, PlayedServer

Row = TypeVar("Row")
Shape: TypeAlias = Callable[[random.Random], int]
ROWS = 10_000
_TICKS = 500  # samples of the pace; a real run takes one every second


def two_humped(rng: random.Random) -> int:
    """Most answers come at once, the others after long thought."""
    return log_normal(rng, 150, 0.5) if rng.random() < 0.6 else log_normal(rng, 2500, 0.45)


SHAPES: dict[str, Shape] = {
    "case study": case_study.length,
    "log-normal": lambda rng: log_normal(rng, 600, 1.0),
    "two-humped": two_humped,
}


@dataclass(frozen=True)
class Seen:
    """What was foretold at one moment of a run.

    Attributes:
        share: Of the run's time that had passed.
        left: Seconds that were left in truth.
        naive: Seconds left by the rate of rows since the beginning.
    """

    share: float
    left: float
    eta: Eta
    naive: float

    @property
    def error(self) -> float:
        """Relative to the truth."""
        return self.eta.seconds / self.left - 1

    @property
    def naive_error(self) -> float:
        """Relative to the truth."""
        return self.naive / self.left - 1

    @property
    def is_held(self) -> bool:
        """Whether the interval holds the truth."""
        return self.eta.low <= self.left <= self.eta.high


def foretold(
    lengths: Sequence[int], server: PlayedServer, shares: Sequence[float], *, is_measured: bool = True
) -> list[Seen]:
    """Plays a run twice: to know how long it takes, and to look ahead when such shares of it have passed.

    Args:
        lengths: Tokens of the answers, in the order in which they are asked.
        server: Answers them.
        shares: Of the run's time, in order.
        is_measured: Whether the preflight has found out how fast a request is that is alone.
    """
    known = Play[int](server, _taking(lengths, lambda tokens: tokens))
    known.run([], lambda _: None)
    tally, pace, seen = Tally("A", len(lengths)), Pace(), list[Seen]()
    outlook = Outlook(pace)
    if is_measured:
        pace.alone(1 / server.step(1, 0.0))
    dataset = outlook.add(tally, LIMIT, None)
    moments = {share * known.now for share in shares}

    def sent(course: Course, now: float) -> None:
        course.sent = now

    def ended(course: Course, now: float, tokens: int) -> None:
        course.answer(tokens, now)
        tally.add_record(RecordStatus.OK, "stop", tokens)
        course.settled(now)

    def look(now: float) -> None:
        if now not in moments:
            pace.sample(now, dataset.under_way)
            return
        outlook.sample(now)
        if outlook.eta is not None:
            naive = (tally.total - tally.done) * now / tally.done
            seen.append(Seen(now / known.now, known.now - now, outlook.eta, naive))

    ticks = {known.now * i / _TICKS for i in range(_TICKS)}
    played = Play[Course](server, _taking(lengths, lambda _: dataset.admit(prompt=100)), sent, ended)
    played.run(sorted(moments | ticks), look)
    return seen


def _taking(lengths: Sequence[int], row: Callable[[int], Row]) -> Callable[[], tuple[Row, int] | None]:
    coming = iter(lengths)

    def take() -> tuple[Row, int] | None:
        tokens = next(coming, None)
        return None if tokens is None else (row(tokens), tokens)

    return take
