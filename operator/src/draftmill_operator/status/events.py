"""Events from the difference of two statuses, so that a restart never repeats one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from draftmill_api.v1alpha1.runstatus import AnyStatus, Attempts
from draftmill_api.v1alpha1.status import Condition, ConditionStatus, ConditionType, Phase
from draftmill_operator.decide.starting import WORKER_RESTARTING
from draftmill_operator.decide.suspended import SUSPENDED
from draftmill_operator.decide.waiting import INPUT_NOT_FOUND, INPUT_NOT_READY


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


_TOLD = (
    ConditionType.INPUT_READY,
    ConditionType.PLANNED,
    ConditionType.SERVERS_READY,
    ConditionType.COMPLETE,
)

_NO_PROBLEM = {"", WORKER_RESTARTING, SUSPENDED, INPUT_NOT_FOUND, INPUT_NOT_READY}
"""Reasons that are told otherwise, or are as it should be."""


def events_between(old: AnyStatus, new: AnyStatus) -> tuple[Event, ...]:
    """What happened between two statuses, in the order in which it is told."""
    return (*_became_true(old, new), *_turns(old, new), *_attempts(old, new), *_problems(old, new))


def _became_true(old: AnyStatus, new: AnyStatus) -> Iterator[Event]:
    before = {condition.type: condition for condition in old.conditions}
    for condition in new.conditions:
        if condition.type in _TOLD and _is_true(condition) and not _is_true(before.get(condition.type)):
            yield Event(EventType.NORMAL, condition.type, condition.message)


def _attempts(old: AnyStatus, new: AnyStatus) -> Iterator[Event]:
    records = {record.worker: record for record in old.attempts}
    several = len(new.attempts) > 1
    for after in new.attempts:
        before = records.get(after.worker, Attempts(worker=after.worker))
        whose = f"worker {after.worker}" if several else "the worker"
        if after.last_failed_attempt > before.last_failed_attempt:
            text = f"attempt {after.last_failed_attempt} of {whose} failed: {after.last_failure}"
            yield Event(EventType.WARNING, "AttemptFailed", text)
        if after.restarts > before.restarts:
            text = f"{whose} ended and was started again in its pod: {after.last_failure}"
            yield Event(EventType.WARNING, "WorkerRestarted", text)
        if after.count > before.count:
            yield Event(EventType.NORMAL, "AttemptStarted", f"attempt {after.count} of {whose}")


def _turns(old: AnyStatus, new: AnyStatus) -> Iterator[Event]:
    """What people asked for, and when the run goes on after it."""
    stopped = {Phase.SUSPENDING, Phase.SUSPENDED}
    if new.phase is Phase.SUSPENDED and old.phase is not Phase.SUSPENDED:
        yield Event(EventType.NORMAL, "Suspended", "nothing of the run is left but its files")
    if old.phase in stopped and new.phase not in stopped:
        yield Event(EventType.NORMAL, "Resumed", "the run goes on from what is on disk")
    if old.pause is not None and new.pause is None and new.completion_time is None:
        yield Event(EventType.NORMAL, "Resumed", "the error policy no longer pauses the run")
    if old.workers_hash and new.restart_served != old.restart_served:
        text = f"the workers start anew, as restart {new.restart_served!r} asks"
        yield Event(EventType.NORMAL, "Restarted", text)
    known = {(node.role, node.name) for node in old.excluded_nodes}
    for node in new.excluded_nodes:
        if (node.role, node.name) not in known:
            text = f"{node.role} pods are kept away from node {node.name}, which refused them: {node.reason}"
            yield Event(EventType.WARNING, "NodeExcluded", text)


def _problems(old: AnyStatus, new: AnyStatus) -> Iterator[Event]:
    """A problem is told when its reason is new, not when its words change; a lost attempt is told already."""
    is_news = new.reason not in {*_NO_PROBLEM, old.reason}
    if new.completion_time is None and is_news:
        yield Event(EventType.WARNING, new.reason, new.message)
    if new.completion_time is not None and old.completion_time is None:
        failed = next((item for item in new.conditions if item.type == ConditionType.FAILED), None)
        if failed is not None:
            yield Event(EventType.WARNING, failed.reason, failed.message)


def _is_true(condition: Condition | None) -> bool:
    return condition is not None and condition.status is ConditionStatus.TRUE
