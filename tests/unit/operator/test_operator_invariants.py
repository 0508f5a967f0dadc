"""Whatever happens to a run, in whatever order: what must hold holds, and left alone it comes to its end."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from draftmill_api.v1alpha1.status import Phase
from draftmill_operator.decide.ended import ended
from draftmill_operator.decide.phases import FOLLOWING, MEANING
from draftmill_operator.decide.rules import RULES
from tests.unit.operator.world.events import ALL, OF_TRAININGS, RUNS, TRAININGS
from tests.unit.operator.world.histories import LONGEST_HEAD_START, Happening, play
from tests.unit.operator.world.subjects import TRAIN

histories = st.lists(st.tuples(st.sampled_from(ALL), st.integers(0, 255)), min_size=20, max_size=80)


@given(st.sampled_from(RUNS), st.integers(0, LONGEST_HEAD_START), histories)
@settings(max_examples=30, derandomize=True)
def test_a_run_keeps_what_was_promised_and_comes_to_its_end(
    spec: dict[str, Any], head_start: int, history: list[Happening]
) -> None:
    for before, after, rule in play(spec, head_start, history):
        assert rule in FOLLOWING[before].get(after, ()), f"{before} -> {after} by {rule.__name__}"


trainings = st.lists(st.tuples(st.sampled_from(OF_TRAININGS), st.integers(0, 255)), min_size=20, max_size=80)


@given(st.sampled_from(TRAININGS), st.integers(0, 2 * LONGEST_HEAD_START), trainings)
@settings(max_examples=30, derandomize=True)
def test_so_does_a_training_that_is_evaluated(
    spec: dict[str, Any], head_start: int, history: list[Happening]
) -> None:
    for before, after, rule in play(spec, head_start, history, TRAIN):
        assert rule in FOLLOWING[before].get(after, ()), f"{before} -> {after} by {rule.__name__}"


def test_every_phase_has_a_meaning_and_leads_somewhere_or_is_an_end() -> None:
    assert set(MEANING) == set(Phase)
    assert set(FOLLOWING) == {None, *Phase} - {Phase.SUCCEEDED, Phase.FAILED}
    assert {after for afters in FOLLOWING.values() for after in afters} == set(Phase)


def test_every_rule_but_the_one_for_ended_runs_leads_to_a_phase() -> None:
    leading = {rule for afters in FOLLOWING.values() for rules in afters.values() for rule in rules}
    assert leading == set(RULES) - {ended}
