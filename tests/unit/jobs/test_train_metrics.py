"""Counting as a server counts."""

from __future__ import annotations

import numpy as np
import pytest

from draftmill_jobs.train.metrics import Acceptance, count_acceptance


def drafts(hits: list[str]) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Token 1 where right, 0 where wrong: a word of x and . for each step, a letter for each query."""
    return np.array([[int(letter == "x") for letter in word] for word in hits], np.int64)


def count(hits: list[str], *, first: int, mask: str) -> Acceptance:
    answer = np.array([letter == "a" for letter in mask])
    return count_acceptance(drafts(hits), first, answer, np.ones(len(answer), np.int64))


def test_the_next_cycle_starts_behind_what_was_accepted_and_the_servers_own_token() -> None:
    """The answer is 3..11. Cycles start at 2 (two right), 5 (one), 7 (none), 8 (one)."""
    found = count(["x..x..x..", "x........"], first=2, mask="ppp" + "a" * 9)

    assert (found.cycles, found.accepted) == (4, (3, 1))
    assert found.length == pytest.approx(2)


def test_a_step_counts_only_when_all_before_it_were_right() -> None:
    found = count(["....", "xxxx"], first=0, mask="paaaaa")

    assert found.accepted == (0, 0)
    assert found.accuracy[1] == 1.0


def test_nothing_is_accepted_beyond_the_end_of_an_answer() -> None:
    found = count(["xxx", "xxx", "xxx"], first=0, mask="paaa")

    assert (found.cycles, found.accepted) == (1, (1, 1, 0))
    assert found.asked == (2, 1, 0)


def test_each_answer_of_a_document_has_cycles_of_its_own() -> None:
    found = count(["xxxxxxxx", "xxxxxxxx"], first=0, mask="paaappaaa")

    assert (found.cycles, found.accepted) == (2, (2, 2))


def test_a_drafter_that_is_always_right_reaches_the_most_that_is_possible() -> None:
    found = count(["x" * 60] * 4, first=0, mask="p" + "a" * 61)

    assert (found.cycles, found.length) == (12, 5.0)


def test_a_token_that_the_drafter_cannot_say_is_a_miss() -> None:
    answer = np.array([False, True, True, True])

    found = count_acceptance(np.array([[5, 7]], np.int64), 0, answer, np.array([0, 0, 5, 9], np.int64))

    assert (found.asked, found.hits) == ((2,), (1,))


def test_counts_add_up() -> None:
    both = Acceptance(2, (2, 1), (3, 3), (4, 4)) + Acceptance(1, (1, 1), (1, 0), (2, 2))

    assert both == Acceptance(3, (3, 2), (4, 3), (6, 6))
    assert both.by_position == (1.0, 2 / 3)


def test_without_a_cycle_a_server_is_as_fast_as_without_a_drafter() -> None:
    assert Acceptance.none(3).length == 1.0
