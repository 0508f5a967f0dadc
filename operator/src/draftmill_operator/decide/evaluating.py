"""The evaluation: what the workers made is measured at work, on one server after the other."""

from __future__ import annotations

from draftmill_api.v1alpha1.status import Phase
from draftmill_operator.decide.steps import Answered, Step, result_of
from draftmill_operator.decide.types import Decision, Situation, Wanted
from draftmill_operator.observe.types import ObservedJob

EVALUATION_FAILED = "EvaluationFailed"


def evaluating(situation: Situation) -> Decision | None:
    """After the workers' success a drafter is evaluated, if that is asked for: a step for each server.

    What a step found is on disk, where the next one and the finish read it.
    """
    if not all(worker.record.succeeded for worker in situation.workers):
        return None
    for role in situation.kind.evaluations(situation.spec):
        job = situation.seen.evaluations.get(role)
        if not _is_done(job):
            step = Step(role, Phase.FINISHING, EVALUATION_FAILED, Wanted(config=True, evaluation=role))
            return step.judge(situation, job, lambda _: None)
    return None


def _is_done(job: ObservedJob | None) -> bool:
    return job is not None and not job.deleting and isinstance(result_of(job, EVALUATION_FAILED), Answered)
