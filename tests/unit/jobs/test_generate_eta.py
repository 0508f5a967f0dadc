"""When a run will be over: what is foretold beside what came true, on played servers.

The generator's own estimator is fed, answer by answer, from runs of 10,000 rows with 128 in flight.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterable, Sequence

import numpy as np
import pytest

from draftmill_api.record import RecordStatus
from draftmill_jobs.generate.eta import Eta, Work, remaining
from draftmill_jobs.generate.lengths import LengthModel
from draftmill_jobs.generate.outlook import Outlook
from draftmill_jobs.generate.pace import Pace, Speed
from draftmill_jobs.shared.lengths import Lengths
from draftmill_jobs.shared.tally import Tally
from tests.support import case_study
from tests.support.played_run import ROWS, SHAPES, Seen, foretold
from tests.support.played_server import Play, PlayedServer

SHARES = (0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
SEEDS = range(20)
USUAL = PlayedServer(case_study.CONCURRENCY, 700.0, alone=5.0)
SHARES_ALL = PlayedServer(case_study.CONCURRENCY, 700.0, alone=math.inf)
SHARES_LITTLE = PlayedServer(case_study.CONCURRENCY, 700.0, alone=2.0)


def traces(shape: str, server: PlayedServer, seeds: range) -> list[Seen]:
    """What was foretold at each of the moments of a run for each seed."""
    seen = list[Seen]()
    for seed in seeds:
        rng = random.Random(seed)
        seen += foretold([SHAPES[shape](rng) for _ in range(ROWS)], server, SHARES)
    assert len(seen) == len(seeds) * len(SHARES), "it is known at every moment"
    return seen


def table(seen: Sequence[Seen]) -> str:
    """Errors at each moment, beside those of the naive rate: shown when a test fails, and with -s."""
    lines = ["   share   worst     rms   naive worst     rms   held"]
    for share in SHARES:
        here = [each for each in seen if math.isclose(each.share, share)]
        figures = (
            max(abs(each.error) for each in here),
            rms(each.error for each in here),
            max(abs(each.naive_error) for each in here),
            rms(each.naive_error for each in here),
            statistics.fmean(each.is_held for each in here),
        )
        lines.append("{:8.0%}{:8.1%}{:8.1%}{:14.1%}{:8.1%}{:7.0%}".format(share, *figures))
    return "\n".join(lines)


def rms(errors: Iterable[float]) -> float:
    return math.sqrt(statistics.fmean(error**2 for error in errors))


def check_intervals(seen: Sequence[Seen]) -> None:
    """80 % intervals hold the truth at three of four moments or more, and nowhere fail a whole run."""
    assert statistics.fmean(each.is_held for each in seen) >= 0.75, table(seen)
    for start in range(0, len(seen), len(SHARES)):
        assert statistics.fmean(each.is_held for each in seen[start : start + len(SHARES)]) >= 0.5, table(
            seen
        )


@pytest.mark.parametrize(("server", "last"), [(USUAL, 0.9), (SHARES_ALL, 0.8)], ids=["usual", "shares all"])
def test_on_the_case_study_it_is_within_a_tenth_from_a_twentieth_on(
    server: PlayedServer, last: float
) -> None:
    seen = traces("case study", server, SEEDS)
    print(table(seen))
    for each in seen:
        if each.share <= last + 1e-9:
            assert abs(each.error) < (0.2 if each.share < 0.049 else 0.1), table(seen)
    assert rms(each.error for each in seen) < 0.75 * rms(each.naive_error for each in seen), table(seen)
    check_intervals(seen)


@pytest.mark.parametrize("shape", ["log-normal", "two-humped"])
def test_on_other_shapes_the_interval_holds_the_truth_and_the_estimate_beats_the_naive_rate(
    shape: str,
) -> None:
    seen = traces(shape, USUAL, SEEDS)
    print(table(seen))
    check_intervals(seen)
    later = [each for each in seen if each.share > 0.049]
    assert rms(each.error for each in later) < 0.9 * rms(each.naive_error for each in later), table(later)


@pytest.mark.parametrize("server", [SHARES_ALL, SHARES_LITTLE], ids=["shares all", "shares little"])
def test_the_interval_holds_the_truth_however_the_last_requests_share_a_server(server: PlayedServer) -> None:
    seen = [each for shape in SHAPES for each in traces(shape, server, range(7))]
    print(table(seen))
    assert statistics.fmean(each.is_held for each in seen) >= 0.75, table(seen)


def test_the_law_of_the_case_study_gives_its_running_means() -> None:
    rng, means = random.Random(0), dict.fromkeys(case_study.RUNNING_MEANS, 0.0)
    plays = 20
    for _ in range(plays):
        lengths, ended = iter([case_study.length(rng) for _ in range(3000)]), list[int]()

        def take() -> tuple[None, int] | None:
            tokens = next(lengths, None)  # noqa: B023 - played at once
            return None if tokens is None else (None, tokens)

        Play(USUAL, take, ended=lambda _row, _now, tokens: ended.append(tokens)).run([], lambda _: None)  # noqa: B023
        for count in means:
            means[count] += statistics.fmean(ended[:count]) / plays
    errors = {count: means[count] / told - 1 for count, told in case_study.RUNNING_MEANS.items()}
    assert max(map(abs, errors.values())) < 0.12, errors
    assert rms(errors.values()) < 0.05, errors


def model(ended: Sequence[int], under_way: Sequence[float], limit: int = 1000) -> LengthModel:
    lengths = Lengths()
    for tokens in ended:
        lengths.add(tokens)
    return LengthModel(lengths, limit, np.array(under_way))


def test_when_nothing_is_left_it_is_over() -> None:
    assert remaining([Work(model([100] * 50, []), waiting=0)], Speed(10.0, 4.0, 0.01)) == Eta(0.0, 0.0, 0.0)


def test_tokens_left_come_at_the_pace_of_all_requests_together() -> None:
    work = Work(model([100] * 1000, [50.0] * 10), waiting=5000)
    eta = remaining([work], Speed(each=5.0, in_flight=10.0, doubt=0.01))
    assert eta.seconds == pytest.approx((5000 * 100 + 10 * 50) / 50, rel=0.03)
    assert eta.low < eta.seconds < eta.high


def test_a_request_that_is_alone_is_faster_than_it_was_among_others() -> None:
    alone = remaining(
        [Work(model([500] * 1000, [100.0]), waiting=0)], Speed(5.0, in_flight=100.0, doubt=0.01)
    )
    assert 400 / 5 / 5 < alone.seconds < 400 / 5 / 3


def test_a_token_budget_ends_it_earlier() -> None:
    speed = Speed(each=5.0, in_flight=10.0, doubt=0.01)
    endless, capped = (
        remaining([Work(model([100] * 1000, [50.0] * 10), waiting=5000, tokens=tokens)], speed)
        for tokens in (None, 100_000)
    )
    assert capped.seconds == pytest.approx(100_000 / 50, rel=0.03)
    assert endless.seconds > 4 * capped.seconds


def test_it_is_not_known_before_some_answers_have_come_nor_while_nothing_is_sent() -> None:
    tally, outlook = Tally("A", 100), Outlook(Pace())
    dataset = outlook.add(tally, 1000, None)
    for second in range(20):
        course = dataset.admit(prompt=100)
        course.sent = float(second)
        outlook.sample(float(second))
        assert (outlook.eta is not None) == (second >= 8)
        course.answer(50, 1.0)
        tally.add_record(RecordStatus.OK, "stop", 50)
        course.settled(second + 1.0)
    outlook.clear()
    assert outlook.eta is None
