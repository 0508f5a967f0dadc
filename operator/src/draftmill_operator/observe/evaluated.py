"""Whether a drafter was measured at work, as the run's own condition has it."""

from __future__ import annotations

from typing import Final

from draftmill_api.v1alpha1.runstatus import AnyStatus
from draftmill_api.v1alpha1.status import ConditionStatus, ConditionType
from draftmill_operator.observe.types import Problem

NOT_STARTED: Final = "NotStarted"
EVALUATING: Final = "Evaluating"
EVALUATED: Final = "Evaluated"
_UNDECIDED: Final = {NOT_STARTED, EVALUATING}


def given_up(status: AnyStatus) -> Problem | None:
    """Why the evaluation was given up; None where it was not, or where there is none."""
    for condition in status.conditions:
        if condition.type == ConditionType.EVALUATED and condition.status is ConditionStatus.FALSE:
            is_decided = condition.reason not in _UNDECIDED
            return Problem(condition.reason, condition.message) if is_decided else None
    return None
