"""Plan and finish: steps that run once and answer by a termination message."""

from __future__ import annotations

from dataclasses import dataclass

from draftmill_api.exitcode import ExitCode
from draftmill_api.progress import TerminationMessage
from draftmill_operator.decide.attempts import refusal
from draftmill_operator.observe.types import JobState, ObservedJob, Problem, Termination

STEP_FAILED = "StepFailed"
UNREADABLE_ANSWER = "UnreadableAnswer"


@dataclass(frozen=True)
class Working:
    """No result yet; the Job controller tries again where a pod failed."""

    problem: Problem | None


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
    if job.state is JobState.SUCCEEDED and job.message is not None:
        return Answered(job.message)
    if job.state is JobState.SUCCEEDED and termination is not None and termination.text:
        return unreadable(job)
    if job.state is JobState.SUCCEEDED or (job.state is JobState.FAILED and termination is None):
        return Unheard()
    if job.state is JobState.FAILED and termination is not None:
        return Ended(Problem(failed_reason, termination.describe()))
    return Working(job.current_problem or _last_failure(job, termination))


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
