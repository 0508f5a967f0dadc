"""What follows when the states of a row did not come, or cannot be right. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

_LOSSES_TOGETHER: Final = 2  # servers lost with a row in flight, after which it goes alone
_LOSSES_ALONE: Final = 5  # servers lost with it alone, after which the row is to blame


class Next(Enum):
    """What to do with the row."""

    NOW = "now"
    """Ask again: it was the server's doing."""
    LATER = "later"
    """Ask again after a while."""
    ALONE = "alone"
    """Ask again with no other row in flight: perhaps it is this one that ends servers."""
    GIVE_UP = "give up"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a row has no states after a try.

    Attributes:
        reason: Kind of failure, snake_case.
        retry_after: Seconds that the server asked to wait.
        is_final: Asking again cannot help.
        is_loss: The connection was lost: perhaps the server was, however well it is afterwards.
    """

    reason: str
    message: str
    retry_after: float | None = None
    is_final: bool = False
    is_loss: bool = False


@dataclass(slots=True)
class Chances:
    """The tries of one row. A server that is lost costs it none, unless it is lost again and again.

    Attributes:
        tries: That failed though the server was well.
        losses: Servers that were lost meanwhile.
    """

    tries: int = 0
    losses: int = 0

    @property
    def spent(self) -> int:
        """How often the row was asked for."""
        return self.tries + self.losses

    def after_loss(self) -> Next:
        """The server was lost, or is not well."""
        self.losses += 1
        if self.losses == _LOSSES_TOGETHER:
            return Next.ALONE
        return Next.GIVE_UP if self.losses >= _LOSSES_TOGETHER + _LOSSES_ALONE else Next.NOW

    def after_failure(self, failure: Failure, retries: int) -> Next:
        """The server is well and the row failed; it may be tried again so many times."""
        self.tries += 1
        return Next.GIVE_UP if failure.is_final or self.tries > retries else Next.LATER
