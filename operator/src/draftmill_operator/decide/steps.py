"""Plan, evaluation and finish: steps that run once and answer by a termination message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import assert_never

from draftmill_api.exitcode import ExitCode
from draftmill_api.progress import TerminationMessage
from draftmill_api.v1alpha1.status import Phase
from draftmill_operator.decide.attempts import refusal
from draftmill_operator.decide.misplaced import NODE_TRIED_AGAIN, job_problem, misplaced
from draftmill_operator.decide.types import Decision, Situation, Wanted
from draftmill_operator.observe.types import JobState, ObservedJob, Problem, Termination
from draftmill_operator.run import Role

STEP_FAILED = "StepFailed"
UNREADABLE_ANSWER = "UnreadableAnswer"


@dataclass(frozen=True)
class Step:
    """One step, and what is wanted while it works."""

    role: Role
    phase: Phase
    failed_reason: str
    """The word for its end after too many failures."""
    wanted: Wanted

    def judge(
        self,
        situation: Situation,
        job: ObservedJob | None,
        use: Callable[[TerminationMessage], Decision | None],
    ) -> Decision:
        """What follows from the step's Job; `use` turns its answer into a decision, or says None to it."""
        if job is None or job.deleting:
            return Decision(self.phase, self.wanted)
        elsewhere = misplaced(situation, self.role, job)
        if elsewhere is not None:
            return self._elsewhere(situation, job, elsewhere)
        result = result_of(job, self.failed_reason)
        match result:
            case Working():
                problem = job_problem(situation, self.role, job) or result.problem
                return Decision(self.phase, self.wanted, problem=problem)
            case Unheard():
                return Decision(self.phase, self._without, redo=self.role)
            case Ended():
                return Decision(Phase.FAILED, failed=result.problem)
            case Answered():
                return use(result.message) or Decision(Phase.FAILED, failed=unreadable(job).problem)
            case _:
                assert_never(result)

    def _elsewhere(self, situation: Situation, job: ObservedJob, why: Problem) -> Decision:
        """Another Job looks elsewhere; the run's limit holds for nodes that are asked in vain, too."""
        facts = situation.facts
        if why.reason == NODE_TRIED_AGAIN:
            facts = facts.with_another_try(self.role, job.uid)
        elif (times := facts.tried_again(self.role)) > situation.spec.backoff_limit:
            said = f"{why.reason}: {why.message}"
            text = f"nodes refuse its pods after they were tried again {times} times; {said}"
            return Decision(Phase.FAILED, failed=Problem(self.failed_reason, text))
        problem = job_problem(situation, self.role, job)
        return Decision(self.phase, self._without, redo=self.role, problem=problem, facts=facts)

    @property
    def _without(self) -> Wanted:
        """What is wanted while the step's Job is removed."""
        return replace(self.wanted, plan=False, evaluation=None, finish=False)


@dataclass(frozen=True)
class Working:
    """No result yet; the Job controller tries again where a pod failed."""

    problem: Problem | None
    """How the last pod failed, if one did."""


@dataclass(frozen=True)
class Answered:
    """The step is done and said so."""

    message: TerminationMessage


@dataclass(frozen=True)
class Unheard:
    """The step is over, but what it said is lost: it has to run again."""


@dataclass(frozen=True)
class Ended:
    """The step cannot succeed."""

    problem: Problem


StepResult = Working | Answered | Unheard | Ended


def result_of(job: ObservedJob, failed_reason: str) -> StepResult:
    """What a step came to; `failed_reason` names the end after too many failures."""
    termination = job.last_termination
    if termination is not None and termination.exit_code == ExitCode.CONFIGURATION:
        return Ended(refusal(termination))
    if job.live_pods or job.state is JobState.ACTIVE:
        # A pod that lives on after its Job's end is one whose last words have not been seen yet.
        return Working(_last_failure(job, termination))
    if job.state is JobState.SUCCEEDED and job.message is not None:
        return Answered(job.message)
    if job.state is JobState.SUCCEEDED and termination is not None and termination.text:
        return unreadable(job)
    if job.state is JobState.SUCCEEDED or termination is None:
        return Unheard()
    return Ended(Problem(failed_reason, termination.describe()))


def unreadable(job: ObservedJob) -> Ended:
    """The step succeeded and said something that this operator does not understand."""
    return Ended(
        Problem(
            UNREADABLE_ANSWER,
            f"{job.name} left a termination message that is not its result; do the job image and the "
            "operator have the same version?",
        )
    )


def _last_failure(job: ObservedJob, termination: Termination | None) -> Problem | None:
    if termination is None or termination.exit_code == ExitCode.DONE:
        return None
    return Problem(STEP_FAILED, f"{job.name}: {termination.describe()}; it is tried again")
