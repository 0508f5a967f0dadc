"""The plan: a look at model, prompts and volumes before a GPU is asked for."""

from __future__ import annotations

from draftmill_api.progress import TerminationMessage
from draftmill_api.v1alpha1.status import Phase
from draftmill_operator.decide.steps import Step
from draftmill_operator.decide.types import Decision, Situation, Wanted
from draftmill_operator.observe.types import Problem
from draftmill_operator.run import Role

PLAN_FAILED = "PlanFailed"
INSUFFICIENT_STORAGE = "InsufficientStorage"
_STEP = Step(Role.PLAN, Phase.PLANNING, PLAN_FAILED, Wanted(config=True, plan=True))


def planning(situation: Situation) -> Decision | None:
    """Until the plan is recorded, the plan's Job is all there is."""
    if situation.run.status.plan is not None:
        return None

    def planned(message: TerminationMessage) -> Decision | None:
        plan = situation.kind.plan(situation.run, message)
        if plan is None:
            return None
        if (problem := _lacks_room(situation, message)) is not None:
            return Decision(Phase.FAILED, failed=problem)
        return Decision(Phase.STARTING, _STEP.wanted, plan=plan, requeue_after=0)

    return _STEP.judge(situation, situation.seen.plan, planned)


def _lacks_room(situation: Situation, message: TerminationMessage) -> Problem | None:
    """The plan's Job saw what is free in the file system, which may be more than the claim has."""
    capacity = situation.seen.data_capacity
    if capacity is None:
        return None
    sentence = situation.kind.lacks_room(situation.run, message, capacity)
    return Problem(INSUFFICIENT_STORAGE, sentence) if sentence else None
