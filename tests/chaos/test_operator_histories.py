"""The operator's decisions in many histories in memory, and the phases that follow each other."""

from __future__ import annotations

import pytest

from draftmill_api.v1alpha1.status import Phase
from draftmill_operator.decide.phases import FOLLOWING
from tests.unit.operator.world.histories import play, seeded

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3600)]
HISTORIES = 1500
LENGTH = 100
RARE = {
    (None, Phase.STARTING),
    (Phase.PENDING, Phase.STARTING),
    (Phase.PAUSED, Phase.FINISHING),
    (Phase.FINISHING, Phase.STARTING),
}
"""Changes that show in one of some thousand histories."""


def test_every_change_of_the_phase_is_in_the_table_and_every_common_one_of_the_table_is_seen() -> None:
    seen = set()
    for seed in range(HISTORIES):
        for before, after, rule in play(*seeded(seed, LENGTH)):
            assert rule in FOLLOWING[before].get(after, ()), f"{seed}: {before} -> {after} by {rule.__name__}"
            seen.add((before, after))
    table = {(before, after) for before, afters in FOLLOWING.items() for after in afters}
    # The runs of these histories have no input to wait for: test_operator_pipeline.py has those that do.
    unseen = {change for change in table - seen if Phase.WAITING_FOR_INPUT not in change}
    assert unseen <= RARE
