"""The run's conditions."""

from __future__ import annotations

from dataclasses import dataclass

from draftmill_api.v1alpha1.status import Condition, ConditionStatus, ConditionType, Phase, Plan
from draftmill_operator.decide.paused import problem_of
from draftmill_operator.decide.types import Decision
from draftmill_operator.observe.types import Problem
from draftmill_operator.run import Run

NOT_STARTED = "NotStarted"
RELEASED = "Released"
_BEFORE_SERVERS = {Phase.PENDING, Phase.PLANNING, Phase.STARTING}


@dataclass(frozen=True)
class ServerCount:
    """How many servers answer, of how many."""

    ready: int
    wanted: int
    problem: Problem | None
    """What keeps the others from being ready."""


def conditions(
    run: Run, decision: Decision, plan: Plan | None, servers: ServerCount, now: str
) -> list[Condition]:
    """The conditions after this pass, in a fixed order; a transition time moves only with its status."""
    stated = [
        _planned(decision, plan),
        _servers_ready(run, decision, servers),
        _progressing(decision),
        _paused(decision),
    ]
    if decision.completed is not None:
        message = f"{decision.completed.progress.done} records"
        reason = "CapReached" if decision.completed.cap_reached else "Finished"
        stated.append((ConditionType.COMPLETE, ConditionStatus.TRUE, reason, message))
    if decision.failed is not None:
        stated.append(
            (ConditionType.FAILED, ConditionStatus.TRUE, decision.failed.reason, decision.failed.message)
        )
    before = {condition.type: condition for condition in run.status.conditions}
    return [
        Condition(
            type=kind.value,
            status=status,
            reason=reason[:128],
            message=message[:4096],
            last_transition_time=(
                before[kind].last_transition_time if kind in before and before[kind].status is status else now
            ),
            observed_generation=run.generation,
        )
        for kind, status, reason, message in stated
    ]


_Stated = tuple[ConditionType, ConditionStatus, str, str]


def _planned(decision: Decision, plan: Plan | None) -> _Stated:
    if plan is not None:
        message = f"{plan.rows} rows in {len(plan.datasets)} datasets"
        return ConditionType.PLANNED, ConditionStatus.TRUE, "Planned", message
    problem = decision.failed or decision.problem or Problem("Planning", "the plan is at work")
    return ConditionType.PLANNED, ConditionStatus.FALSE, problem.reason, problem.message


def _servers_ready(run: Run, decision: Decision, servers: ServerCount) -> _Stated:
    kind, problem = ConditionType.SERVERS_READY, servers.problem
    if run.spec.server is None:
        return kind, ConditionStatus.TRUE, "GivenEndpoints", "the run uses servers that exist already"
    if not servers.wanted:
        reason = NOT_STARTED if decision.phase in _BEFORE_SERVERS else RELEASED
        return kind, ConditionStatus.FALSE, reason, "the run holds no servers"
    count = f"{servers.ready} of {servers.wanted} servers are ready"
    explained = f"{count}: {problem.message}" if problem is not None else count
    if servers.ready >= servers.wanted:
        return kind, ConditionStatus.TRUE, "AllReady", count
    if servers.ready:
        return kind, ConditionStatus.TRUE, "PartlyReady", explained
    return kind, ConditionStatus.FALSE, problem.reason if problem is not None else "Starting", explained


def _progressing(decision: Decision) -> _Stated:
    kind = ConditionType.PROGRESSING
    if decision.failed is not None:
        return kind, ConditionStatus.FALSE, decision.failed.reason, decision.failed.message
    if decision.completed is not None:
        return kind, ConditionStatus.FALSE, "Finished", "nothing is left to do"
    if decision.problem is not None:
        return kind, ConditionStatus.FALSE, decision.problem.reason, decision.problem.message
    return kind, ConditionStatus.TRUE, decision.phase.value, ""


def _paused(decision: Decision) -> _Stated:
    kind, pause = ConditionType.PAUSED, decision.facts.pause if decision.facts is not None else None
    if pause is None or decision.failed is not None:
        return kind, ConditionStatus.FALSE, "NotPaused", ""
    problem = problem_of(pause)
    return kind, ConditionStatus.TRUE, problem.reason, problem.message
