"""The evaluation: what the workers made is measured at work, on one server after the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from draftmill_api.v1alpha1.status import Phase
from draftmill_operator.decide.steps import Answered, Step, result_of
from draftmill_operator.decide.types import Decision, Situation, Wanted
from draftmill_operator.observe.types import ObservedJob, ObservedPod, Problem
from draftmill_operator.run import EVALUATIONS, Role

EVALUATION_FAILED: Final = "EvaluationFailed"
NOT_EVALUATED: Final = "NotEvaluated"
_SERVERS: Final = {
    Role.EVALUATE_PLAIN: "the plain server",
    Role.EVALUATE_DRAFT: "the server with the drafter",
}


def evaluating(situation: Situation) -> Decision | None:
    """After the workers' success a drafter is evaluated, if that is asked for: a step for each server.

    What a step found is on disk, where the next one and the finish read it. One that cannot succeed ends the
    evaluation and not the run: what was trained is there, and the finish publishes it without figures.
    """
    if not all(worker.record.succeeded for worker in situation.workers):
        return None
    if situation.facts.unevaluated is not None:
        return None
    for role in situation.kind.evaluations(situation.spec):
        job = situation.seen.evaluations.get(role)
        if not _is_done(job):
            return _step(situation, role, job)
    return None


def not_evaluated(failure: Problem) -> Problem:
    """What there is to say of a drafter whose evaluation was given up."""
    return Problem(NOT_EVALUATED, f"the drafter was not evaluated: {failure.reason}: {failure.message}")


def _step(situation: Situation, role: Role, job: ObservedJob | None) -> Decision:
    step = Step(role, Phase.FINISHING, EVALUATION_FAILED, Wanted(config=True, evaluation=role))
    decision = step.judge(situation, job, lambda _: None)
    failure = decision.failed or _server_failure(situation, role, job)
    if failure is None:
        return replace(decision, doing=_doing(situation, role, job))
    return Decision(
        Phase.FINISHING,
        Wanted(config=True),
        warning=not_evaluated(failure),
        facts=replace(situation.facts, unevaluated=failure),
        requeue_after=0,
    )


def _is_done(job: ObservedJob | None) -> bool:
    return job is not None and not job.deleting and isinstance(result_of(job, EVALUATION_FAILED), Answered)


def _server_failure(situation: Situation, role: Role, job: ObservedJob | None) -> Problem | None:
    """The kubelet starts a server beside a job for ever; the run's limit holds for it too."""
    pod = _living(job)
    limit = situation.spec.backoff_limit
    if pod is None or pod.server_ready or pod.server_restarts <= limit:
        return None
    why = f"; last: {pod.problem.message}" if pod.problem is not None else ""
    return Problem(
        EVALUATION_FAILED,
        f"{_SERVERS[role]} ended {pod.server_restarts} times before it answered, and backoffLimit is "
        f"{limit}{why}",
    )


def _doing(situation: Situation, role: Role, job: ObservedJob | None) -> str:
    """Which server it is, and how far it is with its answers."""
    server = f"{_SERVERS[role]} ({EVALUATIONS.index(role) + 1} of {len(EVALUATIONS)})"
    pod = _living(job)
    if pod is None or not pod.node:
        return f"{server} is about to start"
    if not pod.server_ready:
        return f"{server} loads the target"
    said = situation.seen.said_of_evaluation.get(role)
    return f"{server} is asked held-out prompts" + (f": {said}" if said else "")


def _living(job: ObservedJob | None) -> ObservedPod | None:
    pod = job.youngest_pod if job is not None and not job.deleting else None
    return pod if pod is not None and not pod.ended else None
