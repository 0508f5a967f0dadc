"""What a server that refuses requests is given: less at once, more with each answer, never above its cap."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill_jobs.generate.gate import Gate


def filled(cap: int | None, taken: int) -> tuple[Gate, list[int]]:
    """A gate with so many requests beyond it, and the generation of each."""
    gate = Gate(cap)
    return gate, [gate.take() for _ in range(taken)]


@pytest.mark.parametrize(
    ("cap", "taken", "limit"),
    [(100, 100, 75), (100, 40, 30), (None, 40, 30), (None, 1, 1), (2, 2, 1)],
    ids=["a full gate", "a cap that was never reached", "no cap", "not below one", "of two one"],
)
def test_a_refusal_leaves_three_quarters_of_what_the_server_had(
    cap: int | None, taken: int, limit: int
) -> None:
    gate, generations = filled(cap, taken)
    gate.refused(generations[0], 0.0, None)
    assert gate.limit == limit


def test_requests_that_are_refused_together_cut_once() -> None:
    gate, generations = filled(100, 100)
    for generation in generations[:60]:
        gate.refused(generation, 0.0, None)
        gate.give_back()
    assert (gate.limit, gate.generation, gate.refusals) == (75, 1, 60)
    later = gate.take()
    gate.refused(later, 5.0, None)
    assert (gate.limit, gate.generation) == (30, 2), "three quarters of the 41 in flight then"


@pytest.mark.parametrize(
    ("retry_after", "closed"), [(None, 1.0), (7.0, 7.0), (0.0, 0.0)], ids=["no word", "a time", "at once"]
)
def test_nothing_is_sent_for_as_long_as_the_server_asks(retry_after: float | None, closed: float) -> None:
    gate, generations = filled(10, 4)
    for _ in range(2):
        gate.give_back()
    gate.refused(generations[0], 100.0, retry_after)
    gate.give_back()
    assert gate.closed_for(100.0) == closed
    assert (gate.limit, gate.taken) == (1, 1)
    gate.give_back()
    assert gate.has_room(100.0 + closed)
    assert closed == 0 or not gate.has_room(100.0 + closed - 0.01)


def test_the_longest_time_asked_for_counts() -> None:
    gate, generations = filled(10, 3)
    gate.refused(generations[0], 100.0, 9.0)
    gate.refused(generations[1], 101.0, 2.0)
    gate.refused(generations[2], 102.0, None)
    assert gate.closed_for(102.0) == 7.0


def test_answers_give_back_what_a_cut_took_within_some_windows_and_no_more() -> None:
    gate, generations = filled(64, 64)
    gate.refused(generations[0], 0.0, None)
    gate.give_back()
    windows = 0.0
    while gate.limit < 64:
        while gate.taken < gate.limit:
            gate.take()
        gate.answered()
        gate.give_back()
        windows += 1 / gate.limit
    assert 3 < windows < 6
    for _ in range(1000):
        gate.take()
        gate.answered()
        gate.give_back()
    assert gate.limit == 64


def test_answers_of_a_server_with_free_places_prove_nothing() -> None:
    gate, generations = filled(64, 64)
    gate.refused(generations[0], 0.0, None)
    for _ in range(40):
        gate.give_back()
    for _ in range(1000):
        gate.answered()
    assert gate.limit == 48


@pytest.mark.parametrize(
    ("before", "is_cut", "after", "limit"),
    [
        (16, False, 32, 32),
        (16, False, None, math.inf),
        (None, False, 8, 8),
        (16, True, 32, 12),
        (16, True, 8, 8),
    ],
)
def test_another_cap_is_in_force_at_once_unless_a_cut_is_below_it(
    before: int | None, is_cut: bool, after: int | None, limit: float
) -> None:
    gate, generations = filled(before, 16)
    if is_cut:
        gate.refused(generations[0], 0.0, None)
    gate.set_cap(after)
    assert gate.limit == limit


def test_another_process_behind_the_address_begins_with_the_whole_cap() -> None:
    gate, generations = filled(16, 16)
    gate.refused(generations[0], 0.0, None)
    gate.forget()
    assert gate.limit == 16


def test_no_place_is_given_back_twice() -> None:
    with pytest.raises(RuntimeError, match="not taken"):
        Gate(4).give_back()


STEPS = st.lists(st.sampled_from(["ask", "answer", "refuse"]), max_size=200)


@given(st.integers(1, 20), STEPS)
def test_it_never_gives_more_than_the_cap_and_never_nothing_for_ever(cap: int, steps: list[str]) -> None:
    gate, now = Gate(cap), 0.0
    in_flight: list[int] = []
    for step in steps:
        now += 2.0  # longer than a gate is closed
        if step == "ask" and gate.has_room(now):
            in_flight.append(gate.take())
        elif step == "answer" and in_flight:
            in_flight.pop(0)
            gate.answered()
            gate.give_back()
        elif step == "refuse" and in_flight:
            gate.refused(in_flight.pop(0), now, None)
            gate.give_back()
        assert 1 <= gate.limit <= cap
        assert len(in_flight) == gate.taken <= cap
        assert in_flight or gate.has_room(now + 2.0)
