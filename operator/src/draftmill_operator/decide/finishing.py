"""The finish: servers go, then what is on disk is read again, and its counts are the run's result."""

from __future__ import annotations

from typing import assert_never

from draftmill_api.v1alpha1.status import Phase
from draftmill_operator.decide.steps import Answered, Ended, Unheard, Working, result_of, unreadable
from draftmill_operator.decide.types import Decision, Situation, Wanted
from draftmill_operator.observe.types import ObservedJob
from draftmill_operator.run import Role

FINISH_FAILED = "FinishFailed"


def finishing(situation: Situation) -> Decision | None:
    """After the worker's success only the finish is left; its GPUs are freed before it starts."""
    if not situation.attempts.succeeded:
        return None
    servers, job = situation.seen.servers, situation.seen.finish
    if servers.exists and not servers.deleting:
        return Decision(Phase.FINISHING, Wanted(config=True))
    if job is None or job.deleting:
        return Decision(Phase.FINISHING, Wanted(config=True, finish=True))
    return _judge(job)


def _judge(job: ObservedJob) -> Decision:
    wanted = Wanted(config=True, finish=True)
    result = result_of(job, FINISH_FAILED)
    match result:
        case Working():
            return Decision(Phase.FINISHING, wanted, problem=result.problem)
        case Unheard():
            return Decision(Phase.FINISHING, Wanted(config=True), redo=Role.FINISH)
        case Ended():
            return Decision(Phase.FAILED, failed=result.problem)
        case Answered():
            if result.message.finish is None:
                return Decision(Phase.FAILED, failed=unreadable(job).problem)
            return Decision(Phase.SUCCEEDED, completed=result.message.finish)
        case _:
            assert_never(result)
