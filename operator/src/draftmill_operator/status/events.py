"""Events from the difference of two statuses, so that a restart never repeats one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from draftmill_api.v1alpha1.status import (
    Attempts,
    Condition,
    ConditionStatus,
    ConditionType,
    SynthRunStatus,
)
from draftmill_operator.decide.generating import WORKER_RESTARTING


class EventType(StrEnum):
    """Kubernetes' two kinds of event."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True)
class Event:
    """Something worth telling people about a run."""

    type: EventType
    reason: str
    message: str


_TOLD = (ConditionType.PLANNED, ConditionType.SERVERS_READY, ConditionType.COMPLETE)


def events_between(old: SynthRunStatus, new: SynthRunStatus) -> tuple[Event, ...]:
    """What happened between two statuses, in the order in which it is told."""
    return (*_became_true(old, new), *_attempts(old, new), *_problems(old, new))


def _became_true(old: SynthRunStatus, new: SynthRunStatus) -> Iterator[Event]:
    before = {condition.type: condition for condition in old.conditions}
    for condition in new.conditions:
        if condition.type in _TOLD and _is_true(condition) and not _is_true(before.get(condition.type)):
            yield Event(EventType.NORMAL, condition.type, condition.message)


def _attempts(old: SynthRunStatus, new: SynthRunStatus) -> Iterator[Event]:
    before, after = old.attempts or Attempts(), new.attempts or Attempts()
    if after.last_failed_attempt > before.last_failed_attempt:
        text = f"attempt {after.last_failed_attempt} failed: {after.last_failure}"
        yield Event(EventType.WARNING, "AttemptFailed", text)
    if after.count > before.count:
        yield Event(EventType.NORMAL, "AttemptStarted", f"attempt {after.count} of the worker")


def _problems(old: SynthRunStatus, new: SynthRunStatus) -> Iterator[Event]:
    """A problem is told when its reason is new, not when its words change; a lost attempt is told already."""
    is_news = new.reason not in {"", WORKER_RESTARTING, old.reason}
    if new.completion_time is None and is_news:
        yield Event(EventType.WARNING, new.reason, new.message)
    if new.completion_time is not None and old.completion_time is None:
        failed = next((item for item in new.conditions if item.type == ConditionType.FAILED), None)
        if failed is not None:
            yield Event(EventType.WARNING, failed.reason, failed.message)


def _is_true(condition: Condition | None) -> bool:
    return condition is not None and condition.status is ConditionStatus.TRUE
