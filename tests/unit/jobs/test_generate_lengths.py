"""How long answers become, learned from those that ended and those under way."""

from __future__ import annotations

import math
import random
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill_jobs.generate.lengths import LengthModel, _log_gamma
from draftmill_jobs.shared.lengths import Lengths

LIMIT = 8192


def model(ended: list[int], under_way: list[float], limit: int = LIMIT) -> LengthModel:
    lengths = Lengths()
    for tokens in ended:
        lengths.add(tokens)
    return LengthModel(lengths, limit, np.array(under_way))


def test_answers_under_way_tell_what_those_that_ended_do_not() -> None:
    """Every answer was sent at once, and is looked at when it has 900 tokens: half are under way still."""
    rng = random.Random(0)
    lengths = [round(rng.lognormvariate(math.log(900), 0.6)) for _ in range(2000)]
    ended = [tokens for tokens in lengths if tokens <= 900]
    seen = model(ended, [900.0] * (len(lengths) - len(ended)))
    truth = statistics.fmean(lengths)
    assert statistics.fmean(ended) < 0.6 * truth
    assert seen.mean == pytest.approx(truth, rel=0.15), "beyond 900 tokens the prior has to guess"
    far = [tokens for tokens in lengths if tokens <= 2000]
    assert model(far, [2000.0] * (len(lengths) - len(far))).mean == pytest.approx(truth, rel=0.03)


def test_two_humps_are_found() -> None:
    rng = random.Random(0)
    lengths = [
        rng.randrange(90, 110) if rng.random() < 0.7 else rng.randrange(2900, 3100) for _ in range(2000)
    ]
    seen = model(lengths, [500.0] * 50)
    assert seen.mean == pytest.approx(statistics.fmean([*lengths, *[3000] * 50]), rel=0.05)
    assert seen.expected_length(np.array([500.0]))[0] == pytest.approx(3000, rel=0.05)


def test_answers_that_the_limit_cut_off_are_as_long_as_it() -> None:
    seen = model([LIMIT] * 900 + [100] * 100, [])
    assert seen.mean == pytest.approx(0.9 * LIMIT + 10, rel=0.02)


def test_tokens_to_come_are_those_under_way_and_those_that_wait() -> None:
    rng = random.Random(0)
    ended = [round(rng.expovariate(1 / 500)) for _ in range(5000)]
    seen = model(ended, [100.0, 700.0])
    waiting, both = seen.to_come(1000.0), model(ended, []).to_come(1000.0)
    assert waiting.mean - both.mean == pytest.approx(2 * 500, rel=0.2), "which have no memory"
    assert both.mean == pytest.approx(1000 * seen.mean, rel=0.01)
    chance = math.sqrt(1000) * 500
    assert chance < math.sqrt(both.variance) < 2 * chance


def test_with_no_answer_yet_a_wide_guess_is_made() -> None:
    seen = model([], [])
    assert LIMIT / 20 < seen.mean < LIMIT / 2
    tokens = seen.to_come(1000.0)
    assert math.sqrt(tokens.variance) > 0.5 * tokens.mean


@given(
    st.integers(1, 20_000).flatmap(
        lambda limit: st.tuples(
            st.just(limit),
            st.lists(st.integers(0, limit), max_size=30),
            st.lists(st.floats(0, limit), max_size=30),
        )
    )
)
def test_whatever_was_seen_the_figures_are_possible(case: tuple[int, list[int], list[float]]) -> None:
    limit, ended, under_way = case
    seen = model(ended, under_way, limit)
    assert 0 < seen.mean <= limit * (1 + 1e-9)
    tokens = seen.to_come(10.0)
    assert 0 < tokens.mean <= limit * (10 + len(under_way)) * (1 + 1e-9)
    assert tokens.variance >= 0
    further = np.linspace(0, limit, 20)
    survival = seen.residual_survival(further)
    assert survival[0] == pytest.approx(1.0)
    assert survival[-1] == pytest.approx(0.0, abs=1e-9)
    assert (np.diff(survival) <= 1e-9).all()
    still = seen.still_under_way(further)
    assert still[0] == pytest.approx(len(under_way))
    assert (np.diff(still) <= 1e-9).all()
    assert (seen.expected_length(np.array(under_way)) >= np.array(under_way)).all()


@given(st.floats(1e-6, 1e7))
def test_the_logarithm_of_the_gamma_function_is_that_of_the_library(x: float) -> None:
    assert _log_gamma(np.array([x]))[0] == pytest.approx(math.lgamma(x), rel=1e-9, abs=1e-9)
