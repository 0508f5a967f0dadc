"""The operator's decisions in thousands of histories in memory, and the phases that follow each other."""

from __future__ import annotations

import pytest

from draftmill_operator.decide.phases import FOLLOWING
from tests.unit.operator.world.histories import play, seeded

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(7200)]
LEAST = 2000
MOST = 20_000
LENGTH = 100


def test_every_change_of_the_phase_is_in_the_table_and_every_one_in_the_table_is_seen() -> None:
    unseen = {(before, after) for before, afters in FOLLOWING.items() for after in afters}
    for seed in range(MOST):
        for before, after, rule in play(*seeded(seed, LENGTH)):
            assert rule in FOLLOWING[before].get(after, ()), f"{seed}: {before} -> {after} by {rule.__name__}"
            unseen.discard((before, after))
        if seed >= LEAST and not unseen:
            return
    assert unseen == set()
