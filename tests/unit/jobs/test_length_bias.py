"""Rows that fail, compared with those that are answered: are they the long ones?"""

from __future__ import annotations

import random

import pytest

from draftmill_api.manifest import RowLengths
from draftmill_api.progress import Concern
from draftmill_api.record import RecordStatus
from draftmill_jobs.generate.board import Board
from draftmill_jobs.shared.length_bias import LengthBias
from draftmill_jobs.shared.medians import WINDOW
from draftmill_jobs.shared.tally import Tally
from tests.support import case_study

EACH = 5.0  # tokens per second of a request


def test_rows_that_fail_whatever_their_length_are_no_bias() -> None:
    rng, bias = random.Random(0), LengthBias()
    for row in range(2700):
        tokens = case_study.length(rng)
        if row % 12:
            bias.answered(tokens, prompt=200)
        else:
            bias.failed(tokens, prompt=200)
    assert bias.finding("A", expected=1325.0) == ""


@pytest.mark.parametrize("failed", [9, 10])
def test_ten_failed_rows_are_needed_to_tell(failed: int) -> None:
    bias = LengthBias()
    for _ in range(100):
        bias.answered(100, prompt=200)
    for _ in range(failed):
        bias.failed(1000.0, prompt=200)
    assert bool(bias.finding("A", expected=100.0)) == (failed == 10)


def test_rows_that_fail_for_their_long_prompts_are_a_bias_too() -> None:
    bias = LengthBias()
    for _ in range(100):
        bias.answered(100, prompt=200)
    for _ in range(20):
        bias.failed(100.0, prompt=9000)
    assert "long prompts: 9000 bytes, the answered ones 200" in bias.finding("A", expected=100.0)


def test_the_figures_are_told_when_all_rows_are_over() -> None:
    bias = LengthBias()
    for _ in range(90):
        bias.answered(100, prompt=200)
    for _ in range(10):
        bias.failed(1000.0, prompt=300)
    seen = bias.comparison("A")
    assert seen.answered == RowLengths(rows=90, mean_tokens=100, mean_prompt_bytes=200)
    assert seen.failed == RowLengths(rows=10, mean_tokens=1000, mean_prompt_bytes=300)
    assert seen.warning == (
        "dataset A: of 100 rows 10 failed, and those are the long ones: 1000 tokens were to be expected of "
        "them, 190 of any row; the answers lean to short ones"
    )


def test_where_no_row_failed_there_is_nothing_to_compare() -> None:
    bias = LengthBias()
    bias.answered(100, prompt=200)
    seen = bias.comparison("A")
    assert seen.failed == RowLengths(rows=0, mean_tokens=0, mean_prompt_bytes=0)
    assert seen.warning == ""


def worked(limit_seconds: float) -> Board:
    """A worker whose requests are cut off after so many seconds, as by a client's time limit."""
    rng, tally = random.Random(0), Tally("B1_glaive", 2700)
    board = Board("", "0/1", 1, 0.0, "", tallies=[tally])
    dataset = board.outlook.add(tally, case_study.LIMIT, None)
    for row in range(1000):
        tokens, now = case_study.length(rng), float(row)
        course = dataset.admit(prompt=200)
        course.sent = now
        if row % 10 == 0:
            board.outlook.sample(now)
        seconds = tokens / EACH
        if seconds > limit_seconds:
            course.failed(now + limit_seconds)
            assert course.given_up() > 1.5 * dataset.expected or row < 200, "a row that took long is long"
            tally.errors += 1
        else:
            course.answer(tokens, now + seconds)
            tally.add_record(RecordStatus.OK, "stop", tokens)
        course.settled(now)
    return board


def test_a_time_limit_that_cuts_the_longest_answers_is_told_with_its_figures() -> None:
    seen = worked(limit_seconds=500.0).progress(1000.0)
    assert seen.concern is Concern.LENGTH_BIAS
    assert "dataset B1_glaive: of 1000 rows" in seen.warning
    assert "failed, and those are the long ones:" in seen.warning


def test_without_failures_there_is_no_warning() -> None:
    assert worked(limit_seconds=1e9).progress(1000.0).warning == ""


def test_the_gravest_concern_is_named_and_the_others_are_told_with_it() -> None:
    board = worked(limit_seconds=500.0)
    board.warning = "26 of the last 500 asked rows failed"
    seen = board.progress(1000.0)
    assert seen.concern is Concern.LENGTH_BIAS
    assert seen.warning.endswith("; 26 of the last 500 asked rows failed")


def test_public_failure_33_answers_that_collapse_are_told_while_the_run_goes_on() -> None:
    """Public failure 33 (vllm#47349): answers collapse to some fifty tokens, and nobody is told."""
    tally = Tally("A", 10_000)
    board = Board("", "0/1", 1, 0.0, "", tallies=[tally])
    dataset = board.outlook.add(tally, case_study.LIMIT, None)
    for row in range(2 * WINDOW):
        course = dataset.admit(prompt=200)
        course.answer(600 if row < WINDOW else 50, row + 1.0)
        course.settled(float(row))
    seen = board.progress(1000.0)
    assert seen.concern is Concern.LENGTHS_FELL
    assert "have at most 50 tokens, of the 200 before 600" in seen.warning
