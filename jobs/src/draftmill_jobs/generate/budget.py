"""`maxTokens` of a dataset: admitted work counted by its expected size. Pure."""

from __future__ import annotations

from enum import Enum


class Admission(Enum):
    """Whether another row may be asked."""

    YES = "yes"
    WAIT = "wait"
    """What is in flight may fill the cap: wait how long those answers get."""
    NO = "no"
    """The cap is reached."""


class TokenBudget:
    """Keeps a dataset near its cap: admits a row only when finished and expected tokens leave room."""

    def __init__(self, cap: int | None) -> None:
        self._cap = cap

    def admits(self, *, tokens: int, promised: float, in_flight: int) -> Admission:
        """Decides on one more row.

        Args:
            tokens: Completion tokens of the records so far.
            promised: Expected tokens of the rows that are asked but not recorded.
            in_flight: How many these are.
        """
        if self._cap is None:
            return Admission.YES
        if tokens >= self._cap:
            return Admission.NO
        if in_flight == 0 or tokens + promised < self._cap:
            return Admission.YES
        return Admission.WAIT
