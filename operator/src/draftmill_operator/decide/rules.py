"""The rules of a run, in their order; the first that applies decides."""

from __future__ import annotations

from dataclasses import replace

from draftmill_operator.decide.blocked import host_path_refused
from draftmill_operator.decide.clock import deadline_passed, next_deadline, turned
from draftmill_operator.decide.ended import ended
from draftmill_operator.decide.evaluating import evaluating
from draftmill_operator.decide.finishing import finishing
from draftmill_operator.decide.nodes import next_try, with_exclusions
from draftmill_operator.decide.paused import paused_without_servers
from draftmill_operator.decide.planning import planning
from draftmill_operator.decide.suspended import suspended
from draftmill_operator.decide.types import Decision, Rule, Situation
from draftmill_operator.decide.waiting import input_missing
from draftmill_operator.decide.working import attempt_over, working

RULES: tuple[Rule, ...] = (
    ended,
    suspended,
    deadline_passed,
    input_missing,
    host_path_refused,
    planning,
    evaluating,
    finishing,
    paused_without_servers,
    attempt_over,
    working,
)


def decide(situation: Situation) -> Decision:
    """What shall be now, with every fact that is to be recorded.

    Raises:
        AssertionError: no rule applies, which the last one excludes.
    """
    _, decision = deciding(situation)
    facts = decision.facts or situation.facts
    if decision.wanted.config:
        facts = with_exclusions(situation, facts)
    facts = replace(facts, clock=turned(situation, decision.phase))
    if decision.failed is not None:
        decision = replace(decision, wanted=replace(decision.wanted, keep_servers=_keeps(situation)))
    retry = next_try(situation, facts) if decision.wanted.config else None
    if facts.excluded_nodes != situation.facts.excluded_nodes:
        retry = 0  # what is recorded is not needed as evidence any more
    # What comes after the end, kept servers and the removal, is a matter of the next pass.
    ends = 0.0 if decision.completed is not None or decision.failed is not None else None
    looks = (decision.requeue_after, next_deadline(situation, facts.clock), retry, ends)
    return replace(
        decision,
        facts=facts,
        requeue_after=min((look for look in looks if look is not None), default=None),
    )


def deciding(situation: Situation) -> tuple[Rule, Decision]:
    """The rule that decides, and its answer."""
    for rule in RULES:
        decision = rule(situation)
        if decision is not None:
            return rule, decision
    raise AssertionError(f"no rule applies to {situation.run.key}")


def _keeps(situation: Situation) -> bool:
    """Whether servers outlive the run's failure."""
    server = situation.serving.apart
    return server is not None and server.keep_after_failure is not None
