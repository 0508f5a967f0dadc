"""How a step ends when it does not succeed."""

from __future__ import annotations

from draftmill_api.exitcode import ExitCode
from draftmill_api.progress import Refusal
from draftmill_jobs.shared.redaction import redact


class JobError(Exception):
    """A step cannot go on.

    Attributes:
        reason: One CamelCase word for conditions and scripts.
        message: What happened, to what, and what to do.
    """

    exit_code = ExitCode.FAILED

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        self.message = redact(message)
        super().__init__(self.message)

    def refusal(self) -> Refusal:
        """The same as the operator and scripts read it."""
        return Refusal(reason=self.reason[:64], message=self.message[:1024])


class JobRefusedError(JobError):
    """No attempt can succeed until a person changes something."""

    exit_code = ExitCode.CONFIGURATION


class JobFailedError(JobError):
    """Another attempt may not meet this again."""


class JobPausedError(JobError):
    """The error policy has tripped where nobody waits to raise it; another start goes on."""

    exit_code = ExitCode.PAUSED
