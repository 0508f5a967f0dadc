"""The error policy: how many of the last asked rows failed, and what follows from that. Pure."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from enum import Enum

from draftmill_api.v1alpha1.generation import ErrorPolicy


class Verdict(Enum):
    """What follows from the share of failed rows."""

    FINE = "fine"
    WARN = "warn"
    PAUSE = "pause"


@dataclass(frozen=True, slots=True)
class FailedRow:
    """A row that was asked in vain.

    Attributes:
        reason: As in its dead letter.
        id: The row's identity.
        message: What was said about it.
    """

    reason: str
    id: str
    message: str


class ErrorWindow:
    """The outcomes of the last `length` asked rows. Only the failed ones take memory."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._asked = 0
        self._failed: deque[tuple[int, FailedRow]] = deque()
        self._reasons: Counter[str] = Counter()

    @property
    def length(self) -> int:
        """How many rows count."""
        return self._length

    @property
    def asked(self) -> int:
        """Rows in the window: at most `length`."""
        return min(self._asked, self._length)

    @property
    def errors(self) -> int:
        """Failed rows in the window."""
        return len(self._failed)

    def add(self, failed: FailedRow | None) -> None:
        """Takes in the outcome of one more row; None when it was answered."""
        self._asked += 1
        if failed is not None:
            self._failed.append((self._asked, failed))
            self._reasons[failed.reason] += 1
        self._forget_older()

    def set_length(self, length: int) -> None:
        """Changes how many rows count; what a shorter window has forgotten stays forgotten."""
        self._length = length
        self._forget_older()

    def clear(self) -> None:
        """Forgets everything."""
        self._asked = 0
        self._failed.clear()
        self._reasons.clear()

    def most_frequent(self) -> tuple[FailedRow, int]:
        """The last row that failed for the most frequent reason, and how many failed so.

        Raises:
            IndexError: No row in the window failed.
        """
        reason, count = self._reasons.most_common(1)[0]
        return next(row for _, row in reversed(self._failed) if row.reason == reason), count

    def _forget_older(self) -> None:
        while self._failed and self._failed[0][0] <= self._asked - self._length:
            _, row = self._failed.popleft()
            self._reasons[row.reason] -= 1


def judge(window: ErrorWindow, policy: ErrorPolicy) -> Verdict:
    """Compares the share of failed rows, of the whole window even while it is not full, with the policy."""
    if window.errors * 100 > policy.pause_percent * window.length:
        return Verdict.PAUSE
    if window.errors * 100 > policy.warn_percent * window.length:
        return Verdict.WARN
    return Verdict.FINE


def figures(window: ErrorWindow, limit: str) -> str:
    """The share, the limit that it is above, the most frequent reason and a row that failed so.

    Args:
        window: With at least one failed row.
        limit: The policy's field and value, for example `warnPercent is 2`.
    """
    row, count = window.most_frequent()
    share = 100 * window.errors / window.length
    return (
        f"{window.errors} of the last {window.asked} asked rows failed, {share:.3g} % of a window of "
        f"{window.length} ({limit}); most often {row.reason} ({count}), for example row {row.id} "
        f"({row.message})"
    )
