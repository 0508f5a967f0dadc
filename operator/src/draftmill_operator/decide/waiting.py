"""Chaining: a run that takes the output of an earlier one waits for it, and is bound to it once."""

from __future__ import annotations

from draftmill_api.v1alpha1.status import Phase
from draftmill_operator.decide.types import Decision, Situation
from draftmill_operator.observe.types import Problem, Upstream

INPUT_NOT_FOUND = "InputNotFound"
INPUT_NOT_READY = "InputNotReady"
INPUT_FAILED = "InputFailed"


def input_missing(situation: Situation) -> Decision | None:
    """A run whose input is another run's output holds nothing until that is Complete; then it is bound to it.

    What it is bound to is recorded before anything is started with it. A Failed one is waited for as well:
    when it is run again, the pipeline goes on. Only its events call for a pass.
    """
    earlier = situation.seen.upstream
    if earlier is None or situation.kind.input(situation.run) is not None:
        return None
    if earlier.published is not None:
        return Decision(Phase.PLANNING, bound=earlier.published, requeue_after=0)
    return Decision(Phase.WAITING_FOR_INPUT, problem=_problem(earlier))


def _problem(earlier: Upstream) -> Problem:
    name = f"{earlier.key.kind} {earlier.key.name}"
    if not earlier.exists:
        return Problem(
            INPUT_NOT_FOUND, f"waiting for {name}, which does not exist in namespace {earlier.key.namespace}"
        )
    if earlier.failure is not None:
        return Problem(
            INPUT_FAILED,
            f"{name} is Failed ({earlier.failure.reason}: {earlier.failure.message}); when it is corrected "
            f"and run again, as `draftmill retry {earlier.key.name}` does, this run goes on",
        )
    return Problem(INPUT_NOT_READY, f"waiting for {name} to be Complete")
