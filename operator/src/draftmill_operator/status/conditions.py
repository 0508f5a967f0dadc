"""The run's conditions."""

from __future__ import annotations

from dataclasses import dataclass

from draftmill_api.v1alpha1.runstatus import AnyStatus
from draftmill_api.v1alpha1.status import Condition, ConditionStatus, ConditionType, Phase
from draftmill_operator.decide.paused import problem_of
from draftmill_operator.decide.types import Decision, Situation
from draftmill_operator.kinds.base import Serving
from draftmill_operator.observe.evaluated import EVALUATED, EVALUATING, NOT_STARTED
from draftmill_operator.observe.types import Problem

RELEASED = "Released"
_BEFORE_SERVERS = {Phase.PENDING, Phase.WAITING_FOR_INPUT, Phase.PLANNING, Phase.STARTING}


@dataclass(frozen=True)
class ServerCount:
    """How many servers answer, of how many."""

    ready: int
    wanted: int
    problem: Problem | None
    """What keeps the others from being ready."""


def conditions(
    situation: Situation, decision: Decision, recorded: AnyStatus, servers: ServerCount, now: str
) -> list[Condition]:
    """The conditions after this pass, in a fixed order; a transition time moves only with its status.

    `recorded` is the status with what this pass has bound and planned.
    """
    run, kind = situation.run, situation.kind
    stated = [
        *([_input_ready(situation, decision)] if kind.takes_input() else []),
        _planned(decision, kind.summary(recorded)),
        _servers_ready(situation.serving, decision, servers),
        *([_evaluated(situation, decision)] if kind.evaluations(run.spec) else []),
        _progressing(decision),
        _paused(decision),
    ]
    if decision.completed is not None:
        done = decision.completed
        stated.append((ConditionType.COMPLETE, ConditionStatus.TRUE, done.reason or "Finished", done.message))
    if decision.failed is not None:
        stated.append(
            (ConditionType.FAILED, ConditionStatus.TRUE, decision.failed.reason, decision.failed.message)
        )
    before = {condition.type: condition for condition in run.status.conditions}
    return [
        Condition(
            type=type_.value,
            status=status,
            reason=reason[:128],
            message=message[:4096],
            last_transition_time=(
                before[type_].last_transition_time
                if type_ in before and before[type_].status is status
                else now
            ),
            observed_generation=run.generation,
        )
        for type_, status, reason, message in stated
    ]


_Stated = tuple[ConditionType, ConditionStatus, str, str]


def _input_ready(situation: Situation, decision: Decision) -> _Stated:
    type_, bound = ConditionType.INPUT_READY, decision.bound or situation.kind.input(situation.run)
    if bound is not None:
        what = f"{bound.kind} {bound.name} ({bound.uid}): {bound.records} records"
        return type_, ConditionStatus.TRUE, "Bound", what
    if situation.kind.upstream(situation.run) is None:
        return type_, ConditionStatus.TRUE, "GivenPath", "the input is a folder of the data volume"
    problem = (
        decision.failed or decision.problem or Problem("NotBound", "the run has not looked for its input")
    )
    return type_, ConditionStatus.FALSE, problem.reason, problem.message


def _planned(decision: Decision, plan: str) -> _Stated:
    if plan:
        return ConditionType.PLANNED, ConditionStatus.TRUE, "Planned", plan
    problem = decision.failed or decision.problem or Problem("Planning", "the plan is at work")
    return ConditionType.PLANNED, ConditionStatus.FALSE, problem.reason, problem.message


def _servers_ready(serving: Serving, decision: Decision, servers: ServerCount) -> _Stated:
    kind, problem = ConditionType.SERVERS_READY, servers.problem
    if serving.started is None and not serving.given:
        return kind, ConditionStatus.TRUE, "NotNeeded", "the workers compute themselves"
    if serving.started is None:
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


def _evaluated(situation: Situation, decision: Decision) -> _Stated:
    """Why an evaluation was given up is read back from here: it is not tried again."""
    kind, facts = ConditionType.EVALUATED, decision.facts or situation.facts
    if facts.unevaluated is not None:
        return kind, ConditionStatus.FALSE, facts.unevaluated.reason, facts.unevaluated.message
    if decision.completed is not None:
        return kind, ConditionStatus.TRUE, EVALUATED, decision.completed.message
    if decision.failed is not None:
        return kind, ConditionStatus.FALSE, decision.failed.reason, decision.failed.message
    if all(record.succeeded for record in facts.attempts):
        return kind, ConditionStatus.FALSE, EVALUATING, decision.doing
    return kind, ConditionStatus.FALSE, NOT_STARTED, "there is no trained drafter yet"


def _progressing(decision: Decision) -> _Stated:
    kind = ConditionType.PROGRESSING
    if decision.failed is not None:
        return kind, ConditionStatus.FALSE, decision.failed.reason, decision.failed.message
    if decision.completed is not None:
        return kind, ConditionStatus.FALSE, "Finished", "nothing is left to do"
    if decision.problem is not None:
        return kind, ConditionStatus.FALSE, decision.problem.reason, decision.problem.message
    return kind, ConditionStatus.TRUE, decision.phase.value, decision.doing


def _paused(decision: Decision) -> _Stated:
    kind, pause = ConditionType.PAUSED, decision.facts.pause if decision.facts is not None else None
    if pause is None or decision.failed is not None:
        return kind, ConditionStatus.FALSE, "NotPaused", ""
    problem = problem_of(pause)
    return kind, ConditionStatus.TRUE, problem.reason, problem.message
