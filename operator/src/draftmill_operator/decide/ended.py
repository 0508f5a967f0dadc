"""A run that has ended never starts a child again, whatever happens to its children."""

from __future__ import annotations

from draftmill_api.v1alpha1.status import Condition, ConditionStatus, ConditionType, Phase, SynthRunStatus
from draftmill_operator.decide.types import Decision, Situation


def ended(situation: Situation) -> Decision | None:
    """Nothing is wanted once Complete or Failed is set."""
    condition = terminal_condition(situation.run.status)
    if condition is None:
        return None
    return Decision(Phase.SUCCEEDED if condition.type == ConditionType.COMPLETE else Phase.FAILED)


def terminal_condition(status: SynthRunStatus) -> Condition | None:
    """Complete or Failed, if one of them is set."""
    return next(
        (
            condition
            for condition in status.conditions
            if condition.type in {ConditionType.COMPLETE, ConditionType.FAILED}
            and condition.status is ConditionStatus.TRUE
        ),
        None,
    )
