"""How fast requests are answered, measured by answers, while more or fewer of them share the servers."""

from __future__ import annotations

import random

import numpy as np
import pytest

from draftmill_jobs.generate.lengths import Array
from draftmill_jobs.generate.pace import Pace
from draftmill_jobs.generate.sharing import Evidence, all_laws
from draftmill_jobs.generate.speed import Speed, steadiness_of


def measured(pace: Pace) -> Speed:
    speed = pace.speed()
    assert speed is not None
    return speed


def per_token(speed: Speed, in_flight: float) -> float:
    """Seconds that a token of a request is expected to take with so many in flight."""
    return float(speed.weights @ speed.per_token(in_flight))


def test_the_pace_does_not_mislead_when_short_answers_end_first() -> None:
    pace = Pace()
    pace.sample(0.0, 10)
    for tokens in range(10, 110, 10):
        pace.answered(tokens, 0.0, tokens / 5)
        pace.sample(tokens / 5, 10)
    speed = measured(pace)
    assert speed.each == pytest.approx(5.0)
    assert speed.in_flight == pytest.approx(10.0)


def halved(alone: float) -> Pace:
    """A hundred requests in flight at 5 tokens a second each, then fifty at another pace."""
    pace = Pace()
    for second in range(1200):
        in_flight, each = (100, 5.0) if second < 1000 else (50, 5.0 * alone)
        pace.sample(float(second), in_flight)
        for _ in range(in_flight // 20):
            pace.answered(100, second - 100 / each, float(second))
    return pace


@pytest.mark.parametrize("alone", [1.0, 1.4, 2.0], ids=["not", "in part", "in full"])
def test_how_requests_share_the_servers_is_learned_when_their_number_changes(alone: float) -> None:
    speed = measured(halved(alone))
    assert per_token(speed, 100) / per_token(speed, 50) == pytest.approx(alone, rel=0.12)


def test_tokens_of_those_under_way_are_told_by_what_was_in_flight_meanwhile() -> None:
    """Fifty requests are twice as fast as a hundred, and one was sent when there still were a hundred."""
    so_far = halved(2.0).tokens_so_far(np.array([900.0, 1100.0]), 1199.0)
    assert so_far[0] == pytest.approx(100 * 5 + 199 * 10, rel=0.1)
    assert so_far[1] == pytest.approx(99 * 10, rel=0.1)


def weights(alone: float) -> Array:
    """Of the laws, when 128 requests got 5 tokens a second each, and one alone so many times as many."""
    laws, evidence = all_laws(), Evidence(all_laws())
    evidence.alone(5.0 * alone)
    evidence.answered(128, 1000, 100_000, 20_000 / laws.slowdown(128))
    return evidence.weights(128)


@pytest.mark.parametrize("alone", [1.0, 2.0, 5.0, 20.0, 128.0])
def test_a_lone_request_of_the_preflight_tells_how_requests_share_the_servers(alone: float) -> None:
    expected = float(np.exp(weights(alone) @ np.log(all_laws().slowdown(128))))
    assert expected == pytest.approx(alone, rel=0.2)


def test_before_anything_was_seen_a_lone_request_is_taken_to_be_some_times_as_fast() -> None:
    for in_flight in (16.0, 128.0, 2048.0):
        alone = all_laws().slowdown(in_flight)
        prior = all_laws().prior(in_flight)
        assert prior.sum() == pytest.approx(1.0)
        assert 2 < float(np.exp(prior @ np.log(alone))) < 12


def test_an_uneven_pace_is_doubted_and_the_more_the_longer_it_remembers() -> None:
    rng = np.random.default_rng(0)
    even, by_chance = np.ones(32), 1 + 0.1 * rng.standard_normal(32)
    for_long = np.repeat(1 + 0.1 * rng.standard_normal(8), 4)
    doubts = [steadiness_of(speeds, 60.0).variance(3600.0) ** 0.5 for speeds in (even, by_chance, for_long)]
    assert doubts[0] == pytest.approx(0.005)
    assert 0.01 < doubts[1] < doubts[2] < 0.1


def test_how_steady_a_pace_is_is_not_known_from_a_few_stretches() -> None:
    assert steadiness_of(np.ones(5), 60.0).variance(1e6) == pytest.approx(0.01)


def test_what_was_before_a_pause_does_not_count() -> None:
    pace = Pace()
    for second in range(100):
        pace.sample(float(second), 10)
        pace.answered(100, second - 10.0, float(second))
    pace.clear()
    assert pace.speed() is None
    pace.sample(1000.0, 10)
    assert pace.speed() is None
    for second in range(1000, 1020):
        pace.answered(100, second - 50.0, float(second))
        pace.sample(second + 1.0, 10)
    assert measured(pace).each == pytest.approx(2.0)


def test_a_long_run_takes_no_more_memory_and_the_pace_is_that_of_its_last_quarter() -> None:
    pace, rng = Pace(), random.Random(0)
    for second in range(10_000):
        pace.sample(float(second), 10)
        each = 5.0 if second < 7400 else 10.0
        pace.answered(100, second - 100 / each, float(second))
        if rng.random() < 0.01:
            assert pace.speed() is not None or second < 20
    assert measured(pace).each == pytest.approx(10.0, rel=0.02)
