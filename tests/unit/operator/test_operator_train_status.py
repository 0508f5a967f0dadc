"""What a DrafterTrain says of its checkpoints: that they do not fit on its claim, how far they are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from draftmill_api.v1alpha1.draftertrain import DrafterTrainStatus
from draftmill_api.v1alpha1.runstatus import Attempts
from draftmill_api.v1alpha1.status import Phase
from draftmill_operator.decide.rules import decide
from draftmill_operator.decide.types import Situation
from draftmill_operator.observe.types import JobState, Observed, Problem
from draftmill_operator.status.summarise import summarise
from tests.support.draftertrains import train_plan_message, train_progress, trainer_says
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


def test_what_was_saved_with_the_last_words_of_an_attempt_is_not_forgotten_for_what_it_said_before() -> None:
    planned = train()
    recorded = planned.status.model_copy(
        update={"attempts": [Attempts(worker=0, count=1)], "progress": train_progress(3, 6, saved_step=3)}
    )
    seen = Observed(known={"0/1": trainer_says(3, 6, saved_step=2)})
    where = Situation(TRAIN, replace(planned, status=recorded), seen, (), (), NOW)

    told = summarise(where, decide(where))

    assert told.progress is not None
    assert told.progress.saved_step == 3
