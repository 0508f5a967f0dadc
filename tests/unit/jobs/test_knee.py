"""`concurrency: Auto` on servers of several kinds, each played second by second."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from draftmill_jobs.generate.gate import Gate
from draftmill_jobs.generate.knee import Knee, Sample

SETTLED_WITHIN = 120.0  # seconds


@dataclass
class Server:
    """A server with a curve of tokens per second over the requests that it works on.

    Attributes:
        places: Requests that it works on at once; the others wait.
        memory: Requests for which its KV cache has room; more are preempted.
        takes: Requests that it takes at once; it refuses the others.
        noise: Standard deviation of the tokens of a second, relative to them.
        rows: Requests that there are to ask at all.
    """

    speed: Callable[[float], float]
    places: int = 100_000
    memory: int = 100_000
    takes: int = 100_000
    noise: float = 0.0
    rows: int = 100_000
    has_metrics: bool = True

    def __post_init__(self) -> None:
        self.now, self.generated, self.preemptions = 0.0, 0.0, 0.0
        self.rng = random.Random(7)
        self.gate = Gate(None)

    def second(self, limit: int) -> Sample:
        """A second with as many requests in flight as may be."""
        in_flight = self.taken(int(min(limit, self.rows, self.gate.limit)))
        running = min(in_flight, self.places)
        self.now += 1.0
        self.generated += self.speed(running) * max(0.0, self.rng.gauss(1.0, self.noise))
        self.preemptions += max(0, running - self.memory)
        if not self.has_metrics:
            return Sample(self.now, in_flight, self.generated, cuts=self.gate.generation)
        return Sample(
            now=self.now,
            in_flight=in_flight,
            generated=self.generated,
            running=running,
            waiting=in_flight - running,
            preemptions=self.preemptions,
            cuts=self.gate.generation,
        )

    def taken(self, asked: int) -> int:
        """How many of the requests of a second it takes; all of them end within it."""
        generations = [self.gate.take() for _ in range(asked)]
        for generation in generations[self.takes :]:
            self.gate.refused(generation, self.now, None)
        for _ in generations[: self.takes]:
            self.gate.answered()
        for _ in generations:
            self.gate.give_back()
        return min(asked, self.takes)


def played(server: Server, knee: Knee, seconds: float) -> float:
    """Plays so many seconds; returns when it settled, or the end."""
    settled = None
    for _ in range(int(seconds)):
        knee.observe(server.second(knee.limit))
        if knee.settled and settled is None:
            settled = server.now
    return server.now if settled is None else settled


def flat_beyond(knee: float) -> Callable[[float], float]:
    return lambda running: 10.0 * min(running, knee)


CURVES = {
    "flat beyond 64": (Server(flat_beyond(64)), 54, 96),
    "flat beyond 64, no metrics": (Server(flat_beyond(64), has_metrics=False), 54, 96),
    "falls beyond 64": (Server(lambda n: 10.0 * min(n, 64) - 4.0 * max(0.0, n - 64)), 54, 96),
    "saturates": (Server(lambda n: 1000.0 * n / (n + 16.0)), 64, 300),
    "flat beyond 64, 8 % of noise": (Server(flat_beyond(64), noise=0.08), 36, 130),
    "32 places": (Server(lambda n: 10.0 * n, places=32), 32, 34),
    "memory for 50": (Server(lambda n: 10.0 * n, memory=50), 36, 50),
    "takes 40": (Server(lambda n: 10.0 * n, takes=40), 30, 40),
    "one request at a time": (Server(flat_beyond(1)), 1, 8),
}


@pytest.mark.parametrize(("server", "least", "most"), CURVES.values(), ids=CURVES.keys())
def test_the_knee_is_found_in_time_and_kept(server: Server, least: int, most: int) -> None:
    knee = Knee(8, 2048)
    assert played(server, knee, SETTLED_WITHIN + 60) < SETTLED_WITHIN
    assert least <= knee.limit <= most, knee.reason
    before = server.generated
    played(server, knee, 20)
    room = min(300, server.memory, server.takes)
    best = max(server.speed(min(n, server.places)) for n in range(1, room + 1))
    assert (server.generated - before) / 20 > 0.7 * best


@pytest.mark.parametrize(
    ("server", "says"),
    [
        (Server(flat_beyond(64)), "more in flight brings no more"),
        (Server(lambda n: 10.0 * n, places=32), "the servers work on 33 at once, and queue what goes beyond"),
        (Server(lambda n: 10.0 * n, memory=50), "and the servers preempted"),
        (Server(lambda n: 10.0 * n, takes=40), "refused requests 3 times while 41 were to be in flight"),
        (Server(lambda n: 10.0 * n), "and no more may be"),
    ],
)
def test_it_says_why(server: Server, says: str) -> None:
    knee = Knee(8, 100)
    played(server, knee, 200)
    assert says in knee.reason
    assert len(knee.reason) <= 256


def test_it_goes_back_when_answers_get_longer_than_the_memory_has_room_for() -> None:
    server, knee = Server(flat_beyond(64)), Knee(8, 2048)
    played(server, knee, 200)
    found, server.memory = knee.limit, 40
    played(server, knee, 300)
    assert knee.limit <= 40 < found
    assert knee.limit >= 30
    assert "the servers preempted" in knee.reason


def test_too_few_rows_prove_nothing() -> None:
    server, knee = Server(flat_beyond(64), rows=10), Knee(8, 2048)
    played(server, knee, 300)
    assert (knee.settled, knee.limit) == (False, 12)
    server.rows = 1000
    played(server, knee, 200)
    assert knee.settled
    assert knee.limit > 50


def test_a_refusal_that_passes_does_not_end_the_search() -> None:
    server, knee = Server(flat_beyond(64), takes=6), Knee(8, 2048)
    played(server, knee, 1)
    server.takes = 100_000
    played(server, knee, 200)
    assert knee.settled
    assert 54 <= knee.limit <= 96


def test_a_server_that_was_started_anew_is_measured_anew() -> None:
    server, knee = Server(flat_beyond(64)), Knee(8, 2048)
    played(server, knee, 5)
    server.generated = 0.0
    played(server, knee, 200)
    assert 54 <= knee.limit <= 96
