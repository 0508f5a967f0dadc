"""Paused, by the error policy or a full volume: the workers wait; after a while they and the servers go.

While they wait, workers go on by themselves when there is room on the volume again. When they are gone,
nobody looks for room: another resumeToken is needed then.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from draftmill_api.base import seconds
from draftmill_api.progress import Progress, WorkerState
from draftmill_api.v1alpha1.runstatus import Pause
from draftmill_api.v1alpha1.status import Phase
from draftmill_operator.decide.types import Decision, Situation, Wanted
from draftmill_operator.kinds.base import PausePolicy
from draftmill_operator.observe.pods import parse_time
from draftmill_operator.observe.types import Problem

ERROR_POLICY = "ErrorPolicyTripped"
STORAGE_FULL = "StorageFull"
_HELD = {WorkerState.PAUSED, WorkerState.STORAGE_FULL}
_FREED = "; its workers and servers were removed meanwhile"


def paused_without_servers(situation: Situation) -> Decision | None:
    """A paused run whose servers were freed waits for another resumeToken, or a policy that allows it."""
    pause, policy = situation.facts.pause, situation.kind.pause_policy(situation.spec)
    if pause is None or policy is None or not pause.freed:
        return None
    is_allowed = pause.reason == ERROR_POLICY and policy.allows(pause.recent_errors)
    if is_allowed or policy.resume_token != pause.resume_token:
        facts = replace(situation.facts, pause=None)
        return Decision(Phase.STARTING, Wanted(config=True), facts=facts, requeue_after=0)
    return Decision(Phase.PAUSED, Wanted(config=True), problem=problem_of(pause))


def paused(situation: Situation, wanted: Wanted) -> Decision | None:
    """All workers that have work left say that they have paused; `wanted` is what they and servers are."""
    answers, policy = _answers(situation), situation.kind.pause_policy(situation.spec)
    if policy is None or not answers or any(answer.state not in _HELD for answer in answers):
        return None
    pause = _pause(situation, answers, policy)
    over = parse_time(pause.since) + timedelta(seconds=seconds(policy.free_servers_after))
    wait = (over - situation.now).total_seconds()
    if wait > 0:
        facts = replace(situation.facts, pause=pause)
        return Decision(Phase.PAUSED, wanted, problem=problem_of(pause), facts=facts, requeue_after=wait)
    pause = pause.model_copy(update={"freed": True})
    facts = replace(situation.facts, pause=pause)
    return Decision(Phase.PAUSED, Wanted(config=True), problem=problem_of(pause), facts=facts)


def problem_of(pause: Pause) -> Problem:
    """Why the run does not go on."""
    return Problem(pause.reason, pause.message[:900] + (_FREED if pause.freed else ""))


def _answers(situation: Situation) -> list[Progress] | None:
    """What each worker with work left says; None if one of them cannot be heard."""
    progress = situation.progress
    open_workers = [worker for worker in situation.workers if not worker.record.succeeded]
    if any(worker.living is None or worker.index not in progress for worker in open_workers):
        return None
    return [progress[worker.index] for worker in open_workers]


def _pause(situation: Situation, answers: list[Progress], policy: PausePolicy) -> Pause:
    """What the workers say, since when it is so; failed rows go before a full volume.

    With another reason, or after another word to go on, it is another pause, whether or not anybody saw the
    workers go on between the two.
    """
    worst = max(answers, key=lambda answer: (answer.state is WorkerState.PAUSED, answer.recent_errors))
    pause = Pause(
        since=situation.now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        reason=ERROR_POLICY if worst.state is WorkerState.PAUSED else STORAGE_FULL,
        message=worst.message[:1024],
        recent_errors=worst.recent_errors,
        resume_token=policy.resume_token,
    )
    recorded = situation.facts.pause
    if recorded is None or (recorded.reason, recorded.resume_token) != (pause.reason, pause.resume_token):
        return pause
    return pause.model_copy(update={"since": recorded.since})
