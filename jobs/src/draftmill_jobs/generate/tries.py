"""What becomes of a row whose request has failed. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum
from typing import Final

from draftmill_jobs.engines.failures import FailureKind, RequestFailedError, Verdict
from draftmill_jobs.generate.retry import backoff

_EXCUSES: Final = 16  # failures of servers after which it may be the row that brings them down


class Next(Enum):
    """What to do with the row."""

    NOW = "now"
    """Ask again at once."""
    LATER = "later"
    """Ask again after a while."""
    GIVE_UP = "give up"


@dataclass(slots=True)
class Tries:
    """The tries of one row. What is its server's doing costs it none, unless that happens again and again.

    Attributes:
        failed: Tries that count against the row.
        excused: Tries that do not: its server was lost, or refused it for lack of room.
    """

    failed: int = 0
    excused: int = 0

    @property
    def spent(self) -> int:
        """How often the row was asked."""
        return self.failed + self.excused

    def after(self, failure: RequestFailedError, *, is_lost: bool, retries: int) -> Next:
        """Takes in one more failure.

        Args:
            failure: That of a row, or of its server; one that concerns every row is no matter of tries.
            is_lost: The server is gone, or says that it is not well.
            retries: Most further tries of a row.
        """
        if failure.verdict is Verdict.DEAD:
            self.failed += 1
            return Next.GIVE_UP
        if self.excused < _EXCUSES and (is_lost or failure.kind is FailureKind.OVERLOADED):
            self.excused += 1
            return Next.NOW if is_lost else Next.LATER
        self.failed += 1
        return Next.GIVE_UP if self.failed > retries else Next.LATER

    def pause(self, failure: RequestFailedError, rng: random.Random) -> float:
        """Seconds until the row is asked again. How long a server wants to be spared, its gate knows."""
        if failure.kind is FailureKind.OVERLOADED:
            return backoff(self.spent, None, rng)
        return backoff(self.failed, failure.retry_after, rng)
