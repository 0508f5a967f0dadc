"""The rules of a SynthRun, in their order; the first that applies decides."""

from __future__ import annotations

from draftmill_operator.decide.blocked import host_path_refused
from draftmill_operator.decide.ended import ended
from draftmill_operator.decide.finishing import finishing
from draftmill_operator.decide.generating import attempt_over, generating, next_attempt, servers_missing
from draftmill_operator.decide.planning import planning
from draftmill_operator.decide.types import Decision, Rule, Situation

RULES: tuple[Rule, ...] = (
    ended,
    host_path_refused,
    planning,
    finishing,
    attempt_over,
    servers_missing,
    next_attempt,
    generating,
)


def decide(situation: Situation) -> Decision:
    """What shall be now.

    Raises:
        AssertionError: no rule applies, which the last one excludes.
    """
    for rule in RULES:
        decision = rule(situation)
        if decision is not None:
            return decision
    raise AssertionError(f"no rule applies to {situation.run.key}")
