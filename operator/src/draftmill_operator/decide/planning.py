"""The plan: a look at model, prompts and volumes before a GPU is asked for."""

from __future__ import annotations

from typing import assert_never

from draftmill_api.v1alpha1.status import Phase
from draftmill_operator.decide.steps import Answered, Ended, Unheard, Working, result_of, unreadable
from draftmill_operator.decide.types import Decision, Situation, Wanted
from draftmill_operator.observe.types import ObservedJob
from draftmill_operator.run import Role

PLAN_FAILED = "PlanFailed"


def planning(situation: Situation) -> Decision | None:
    """Until the plan is recorded, the plan's Job is all there is."""
    if situation.run.status.plan is not None:
        return None
    job = situation.seen.plan
    if job is None or job.deleting:
        return Decision(Phase.PLANNING, Wanted(config=True, plan=True))
    return _judge(job)


def _judge(job: ObservedJob) -> Decision:
    wanted = Wanted(config=True, plan=True)
    result = result_of(job, PLAN_FAILED)
    match result:
        case Working():
            return Decision(Phase.PLANNING, wanted, problem=result.problem)
        case Unheard():
            return Decision(Phase.PLANNING, Wanted(config=True), redo=Role.PLAN)
        case Ended():
            return Decision(Phase.FAILED, failed=result.problem)
        case Answered():
            if result.message.plan is None:
                return Decision(Phase.FAILED, failed=unreadable(job).problem)
            return Decision(Phase.STARTING, wanted, plan=result.message.plan, requeue_after=0)
        case _:
            assert_never(result)
