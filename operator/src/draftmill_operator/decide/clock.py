"""The run's two clocks and the deadlines that they are held against."""

from __future__ import annotations

from datetime import datetime

from draftmill_api.base import seconds
from draftmill_api.v1alpha1.runstatus import ClockHand, RunClock
from draftmill_api.v1alpha1.status import Phase
from draftmill_operator.decide.types import Decision, Situation
from draftmill_operator.observe.pods import parse_time
from draftmill_operator.observe.types import Problem

DEADLINE_EXCEEDED = "DeadlineExceeded"
PENDING_DEADLINE_EXCEEDED = "PendingDeadlineExceeded"
_STANDING = {Phase.SUSPENDING, Phase.SUSPENDED, Phase.PAUSED, Phase.SUCCEEDED, Phase.FAILED}


def deadline_passed(situation: Situation) -> Decision | None:
    """A run whose time is over is Failed."""
    spec, clock = situation.spec, situation.facts.clock
    if left(clock, ClockHand.ACTIVE, spec.active_deadline, situation.now) == 0:
        text = f"the run was active for {spec.active_deadline}, its activeDeadline"
        return Decision(Phase.FAILED, failed=Problem(DEADLINE_EXCEEDED, text))
    if not clock.placed and left(clock, ClockHand.PENDING, spec.pending_deadline, situation.now) == 0:
        waited_for = situation.run.status.message or "its first server or worker to start"
        text = f"the run waited for {spec.pending_deadline}, its pendingDeadline; last: {waited_for}"
        return Decision(Phase.FAILED, failed=Problem(PENDING_DEADLINE_EXCEEDED, text))
    return None


def turned(situation: Situation, phase: Phase) -> RunClock:
    """The clock after a decision for this phase; another one only if something starts or stops."""
    clock, now = situation.facts.clock, situation.now
    placed = clock.placed or _is_placed(situation)
    hand = None if phase in _STANDING else (ClockHand.ACTIVE if placed else ClockHand.PENDING)
    if (hand, placed) == (clock.running, clock.placed):
        return clock
    return RunClock(
        running=hand,
        since=now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        pending_seconds=int(elapsed(clock, ClockHand.PENDING, now)),
        active_seconds=int(elapsed(clock, ClockHand.ACTIVE, now)),
        placed=placed,
    )


def next_deadline(situation: Situation, clock: RunClock) -> float | None:
    """Seconds until the clock that runs reaches its deadline."""
    spec = situation.spec
    if clock.running is ClockHand.ACTIVE:
        return left(clock, ClockHand.ACTIVE, spec.active_deadline, situation.now)
    if clock.running is ClockHand.PENDING:
        return left(clock, ClockHand.PENDING, spec.pending_deadline, situation.now)
    return None


def elapsed(clock: RunClock, hand: ClockHand, now: datetime) -> float:
    """Seconds on one of the clocks."""
    before = clock.active_seconds if hand is ClockHand.ACTIVE else clock.pending_seconds
    if clock.running is not hand or clock.since is None:
        return float(before)
    return before + max(0.0, (now - parse_time(clock.since)).total_seconds())


def left(clock: RunClock, hand: ClockHand, deadline: str | None, now: datetime) -> float | None:
    """Seconds until a deadline on one of the clocks; None where there is no deadline."""
    if deadline is None:
        return None
    return max(0.0, seconds(deadline) - elapsed(clock, hand, now))


def _is_placed(situation: Situation) -> bool:
    """A server was started; where the run has none, a worker was.

    A node is not enough: without its image or its volumes a pod holds GPUs and does nothing.
    """
    seen = situation.seen
    if situation.serving.apart is not None:
        pods = seen.servers.pods
    else:
        pods = tuple(pod for job in seen.workers for pod in job.pods)
    return any(pod.main_started for pod in pods)
