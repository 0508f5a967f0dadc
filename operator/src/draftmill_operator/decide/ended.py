"""A run that has ended never starts a child again, whatever happens to its children."""

from __future__ import annotations

from datetime import datetime, timedelta

from draftmill_api.base import seconds
from draftmill_api.v1alpha1.runstatus import AnyStatus
from draftmill_api.v1alpha1.status import Condition, ConditionStatus, ConditionType, Phase
from draftmill_operator.decide.types import Decision, Situation, Wanted
from draftmill_operator.observe.pods import parse_time


def ended(situation: Situation) -> Decision | None:
    """Once Complete or Failed is set, servers stay as long as was asked for, and then the run goes."""
    status, spec = situation.run.status, situation.spec
    condition = terminal_condition(status)
    if condition is None:
        return None
    good = condition.type == ConditionType.COMPLETE
    server, keep = situation.serving.apart, None
    if server is not None:
        keep = server.keep_after_success if good else server.keep_after_failure
    keeping, going = _left(situation, keep), _left(situation, spec.ttl_after_finished)
    return Decision(
        Phase.SUCCEEDED if good else Phase.FAILED,
        Wanted(keep_servers=bool(keeping)),
        remove_run=going == 0,
        requeue_after=min((left for left in (keeping, going) if left), default=None),
    )


def terminal_condition(status: AnyStatus) -> Condition | None:
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


def _left(situation: Situation, span: str | None) -> float | None:
    """Seconds of a span after the run's end that are left; None where nobody asked for one."""
    ended_at = situation.run.status.completion_time
    if span is None or ended_at is None:
        return None
    end: datetime = parse_time(ended_at) + timedelta(seconds=seconds(span))
    return max(0.0, (end - situation.now).total_seconds())
