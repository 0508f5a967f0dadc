"""Holding rows back when the error policy trips, and letting them go on when somebody says so."""

from __future__ import annotations

import asyncio
import logging
from enum import StrEnum

from draftmill_api.v1alpha1.generation import ErrorPolicy
from draftmill_jobs.engines.remedies import remedy_for
from draftmill_jobs.generate.error_policy import ErrorWindow, FailedRow, Verdict, figures, judge
from draftmill_jobs.generate.limiter import Hold, Limiter

log = logging.getLogger(__name__)

_MESSAGE_LIMIT = 300  # characters of what was said about a row


class WhenPaused(StrEnum):
    """What a worker does when the error policy has tripped."""

    WAIT = "wait"
    """It stays, and goes on when the policy is raised or another resume token is set."""
    EXIT = "exit"
    """It ends with `ExitCode.PAUSED`."""


class Guard:
    """Judges after each asked row. A pause stays until the policy or the resume token changes.

    Attributes:
        paused: Why rows are held back, in a sentence; empty while they are not.
        warning: What deserves a look, in a sentence; empty without need.
    """

    def __init__(self, limiter: Limiter, policy: ErrorPolicy, resume_token: str, when: WhenPaused) -> None:
        self._limiter = limiter
        self._policy = policy
        self._resume_token = resume_token
        self._when = when
        self._window = ErrorWindow(policy.window)
        self._tripped = asyncio.Event()
        self.paused = ""
        self.warning = ""

    @property
    def recent_errors(self) -> int:
        """Failed rows in the window."""
        return self._window.errors

    def answered(self) -> None:
        """An asked row has its record."""
        self._window.add(None)
        self._judge()

    def failed(self, reason: str, identity: str, message: str) -> None:
        """An asked row is a dead letter."""
        self._window.add(FailedRow(reason, identity, message[:_MESSAGE_LIMIT]))
        self._judge()

    def use(self, policy: ErrorPolicy, resume_token: str) -> None:
        """Puts another policy or resume token in force, unless the worker is ending already."""
        if self.paused and self._when is WhenPaused.EXIT:
            return
        changed = policy != self._policy
        self._policy = policy
        self._window.set_length(policy.window)
        if resume_token != self._resume_token:
            self._resume_token = resume_token
            self._window.clear()
            self._go_on("another resumeToken is set")
        elif changed and judge(self._window, policy) is not Verdict.PAUSE:
            self._go_on("the error policy allows it")
        elif changed and self.paused:
            self._pause()  # which says by how much it is not enough
        self._judge()

    async def until_tripped(self) -> None:
        """Waits until rows are held back for the first time."""
        await self._tripped.wait()

    def _judge(self) -> None:
        verdict = judge(self._window, self._policy)
        if verdict is Verdict.PAUSE and not self.paused:
            self._pause()
        warned = bool(self.warning)
        self.warning = ""
        if verdict is not Verdict.FINE:
            self.warning = figures(self._window, f"warnPercent is {self._policy.warn_percent}")
        if verdict is Verdict.WARN and not warned:
            log.warning("%s", self.warning)

    def _pause(self) -> None:
        said = figures(self._window, f"pausePercent is {self._policy.pause_percent}")
        remedy = remedy_for(self._window.most_frequent()[0].reason)
        self.paused = f"paused: {said}. Remedy: {remedy}; then {_WAYS_ON[self._when]}"
        self._limiter.pause(Hold.ERROR_POLICY)
        self._tripped.set()
        log.warning("%s", self.paused)

    def _go_on(self, because: str) -> None:
        if self.paused:
            log.info("going on: %s", because)
            self.paused = ""
            self._limiter.resume(Hold.ERROR_POLICY)


_WAYS_ON = {
    WhenPaused.WAIT: "raise generation.errorPolicy.pausePercent, or set another resumeToken",
    WhenPaused.EXIT: "run again, with a higher generation.errorPolicy.pausePercent if these failures may be",
}
