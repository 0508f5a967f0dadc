"""Signs of life: when to give a request up although nothing limits its total time. Pure.

No sign of life of a server is: no byte, no finished request, and no growth of its counter of generated
tokens. A long answer on a busy server is healthy however long it takes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from draftmill_jobs.engines.metrics import ServerFigures


@dataclass(eq=False, slots=True)
class Flight:
    """A request on its way.

    Attributes:
        started: Monotonic seconds.
        cancel: Ends the request.
        last_byte: Monotonic seconds; None before the first.
        given_up: It has been ended from outside.
        is_moved: It is not to blame for that: its server was taken out.
    """

    started: float
    cancel: Callable[[], None]
    last_byte: float | None = None
    given_up: bool = False
    is_moved: bool = False

    def give_up(self, *, is_moved: bool = False) -> None:
        """Ends the request, once."""
        if not self.given_up:
            self.given_up, self.is_moved = True, is_moved
            self.cancel()


@dataclass(slots=True)
class Life:
    """What is known of one server's work.

    Attributes:
        last_sign: Monotonic seconds of the last sign of life.
        figures: The server's own; None when it has no metrics.
        figures_at: Monotonic seconds of the last look at them.
        shortage_since: Since when the server has had fewer requests than we have with it.
    """

    last_sign: float
    flights: set[Flight] = field(default_factory=set)
    figures: ServerFigures | None = None
    figures_at: float = 0.0
    shortage_since: float | None = None

    def byte_came(self, flight: Flight, now: float) -> None:
        """Notes that part of an answer came."""
        flight.last_byte = self.last_sign = now

    def ended(self, flight: Flight, now: float) -> None:
        """Notes that a request is over."""
        self.flights.discard(flight)
        self.last_sign = now

    def observe(self, figures: ServerFigures | None, now: float) -> None:
        """Takes in the server's own figures."""
        if figures is not None and (self.figures is None or figures.generated != self.figures.generated):
            self.last_sign = now
        self.figures, self.figures_at = figures, now
        if figures is None or figures.requests >= len(self.flights):
            self.shortage_since = None
        elif self.shortage_since is None:
            self.shortage_since = now

    def is_silent(self, now: float, limit: float) -> bool:
        """Whether there was no sign of life for more than `limit` seconds."""
        return now - self.last_sign > limit

    def lost_flights(self, now: float, limit: float) -> list[Flight]:
        """The requests to give up, oldest first, when `limit` seconds without a sign are too many."""
        oldest_first = sorted(self.flights, key=lambda flight: flight.started)
        old = [flight for flight in oldest_first if now - flight.started > limit]
        if self.is_silent(now, limit):
            return old
        if self.figures is None:
            return [
                flight for flight in old if flight.last_byte is not None and now - flight.last_byte > limit
            ]
        if self.shortage_since is not None and now - self.shortage_since > limit:
            missing = len(self.flights) - int(self.figures.requests)
            return old[: max(0, missing)]
        return []
