"""The status of a run that the operator cannot act on. It may not be parsed, so it is changed as JSON."""

from __future__ import annotations

from typing import Any

from draftmill_api.v1alpha1.status import Condition, ConditionStatus, ConditionType, Phase
from draftmill_operator.observe.types import Problem

Status = dict[str, Any]


def not_understood(status: Status, problem: Problem, generation: int, now: str) -> Status:
    """The status with the problem as its reason and as the condition Progressing, all else as it was.

    A run that has ended keeps what it ended with.
    """
    if status.get("completionTime"):
        return status
    conditions = status.get("conditions") or []
    before: Status = next((item for item in conditions if item["type"] == ConditionType.PROGRESSING), {})
    stated = Condition(
        type=ConditionType.PROGRESSING.value,
        status=ConditionStatus.FALSE,
        reason=problem.reason,
        message=problem.message[:4096],
        last_transition_time=(
            before["lastTransitionTime"] if before.get("status") == ConditionStatus.FALSE else now
        ),
        observed_generation=generation,
    )
    others = [item for item in conditions if item is not before]
    return status | {
        "phase": status.get("phase") or Phase.PENDING.value,
        "reason": stated.reason,
        "message": stated.message,
        "conditions": [*others, stated.to_json()],
    }
