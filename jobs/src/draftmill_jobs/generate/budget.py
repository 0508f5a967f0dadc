"""`maxTokens` of a dataset: admitted work counted by its expected size. Pure."""

from __future__ import annotations

from enum import Enum

_PRIOR = 8  # answers of the greatest length, as if seen, before real ones tell better


class Admission(Enum):
    """Whether another row may be asked."""

    YES = "yes"
    WAIT = "wait"
    """What is in flight may fill the cap: wait how long those answers get."""
    NO = "no"
    """The cap is reached."""


class TokenBudget:
    """Keeps a dataset near its cap: admits a row only when finished and expected tokens leave room."""

    def __init__(self, cap: int | None, longest_answer: int) -> None:
        self._cap = cap
        self._longest_answer = longest_answer

    def admits(self, *, tokens: int, records: int, in_flight: int) -> Admission:
        """Decides on one more row.

        Args:
            tokens: Completion tokens of the records so far.
            records: Number of those records.
            in_flight: Rows asked but not recorded.
        """
        if self._cap is None:
            return Admission.YES
        if tokens >= self._cap:
            return Admission.NO
        expected = (tokens + _PRIOR * self._longest_answer) / (records + _PRIOR)
        if in_flight == 0 or tokens + in_flight * expected < self._cap:
            return Admission.YES
        return Admission.WAIT
