"""What a DrafterTrain says of checkpoints that do not fit on its claim."""

from __future__ import annotations

from dataclasses import replace

import pytest

from draftmill_api.v1alpha1.draftertrain import DrafterTrainStatus
from draftmill_api.v1alpha1.status import Phase
from draftmill_operator.decide.rules import decide
from draftmill_operator.decide.types import Situation
from draftmill_operator.observe.types import JobState, Observed, Problem
from tests.support.draftertrains import train_plan_message
from tests.unit.operator.builders import NOW, ended_pod, job
from tests.unit.operator.test_operator_train_rendering import TRAIN, train

NEEDED = 1 << 30
TOO_LARGE = (
    "checkpoints and drafter of 20000000 weights need 1.07 GB, and claim drafters has 1.07 GB; enlarge the "
    "claim, or lower checkpoint.keep"
)


@pytest.mark.parametrize(
    ("capacity", "expected"),
    [(None, None), (NEEDED, None), (NEEDED - 1, Problem("InsufficientStorage", TOO_LARGE))],
    ids=["unknown", "exactly enough", "a byte short"],
)
def test_a_planned_training_is_compared_with_its_claim(
    capacity: int | None, expected: Problem | None
) -> None:
    bound = train(volume="drafters")
    run = replace(bound, status=DrafterTrainStatus(input=bound.status.input))
    plan = job(ended_pod(0, train_plan_message(6)), state=JobState.SUCCEEDED)

    decision = decide(Situation(TRAIN, run, Observed(plan=plan, data_capacity=capacity), (), (), NOW))

    assert decision.phase is (Phase.FAILED if expected else Phase.STARTING)
    assert decision.failed == expected
    assert (decision.plan is None) == (expected is not None)
