"""Whether the rows that fail are long ones, so that what is left leans to short answers. Pure.

A tenth of the rows lost is bad; a tenth of the longest lost is worse, for then no row count shows it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import orjson

from draftmill_api.manifest import LengthComparison, RowLengths

_FAILED: Final = 10  # rows, before anything is said
_ANSWERED: Final = 20
_TIMES: Final = 1.5  # as long as the others, on average
_DEVIATIONS: Final = 3.0  # beyond what chance makes of so many rows


@dataclass
class Sums:
    """Mean and deviation of figures, of which none is kept."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    def add(self, value: float) -> None:
        """Takes in one figure."""
        self.count += 1
        self.total += value
        self.squares += value * value

    @property
    def mean(self) -> float:
        """0 while there is none."""
        return self.total / self.count if self.count else 0.0

    @property
    def deviation(self) -> float:
        """Of the figures from their mean."""
        return math.sqrt(max(0.0, self.squares / self.count - self.mean**2)) if self.count else 0.0


def prompt_bytes(messages: list[dict[str, Any]]) -> int:
    """How long a prompt is, whatever the tokenizer: bytes of its messages as JSON."""
    return len(orjson.dumps(messages))


class LengthBias:
    """Compares the rows of a dataset that failed with those that were answered. Keeps none of them."""

    def __init__(self) -> None:
        self._answered, self._answered_prompts = Sums(), Sums()
        self._failed, self._failed_prompts = Sums(), Sums()

    def answered(self, tokens: int, prompt: int) -> None:
        """A row was answered with so many tokens; its prompt has so many bytes."""
        self._answered.add(tokens)
        self._answered_prompts.add(prompt)

    def failed(self, tokens: float, prompt: int) -> None:
        """A row failed of which so many tokens were to be expected; its prompt has so many bytes."""
        self._failed.add(tokens)
        self._failed_prompts.add(prompt)

    @property
    def mean(self) -> float:
        """Tokens of a row, had all been answered that were asked; 0 when none was."""
        rows = self._answered.count + self._failed.count
        return (self._answered.total + self._failed.total) / rows if rows else 0.0

    def comparison(self, name: str) -> LengthComparison:
        """The figures of a dataset when all its rows are over."""
        return LengthComparison(
            name=name,
            answered=_lengths(self._answered, self._answered_prompts),
            failed=_lengths(self._failed, self._failed_prompts),
            warning=self.finding(name, self.mean),
        )

    def finding(self, name: str, expected: float) -> str:
        """What is wrong, in a sentence; empty while nothing is.

        Args:
            name: The dataset's.
            expected: Tokens to be expected of any row: those that came first are too short to compare with.
        """
        if self._failed.count < _FAILED or self._answered.count < _ANSWERED:
            return ""
        failed, answered = self._failed, self._answered
        shares = f"dataset {name}: of {failed.count + answered.count} rows {failed.count} failed"
        if _is_longer(failed, expected, answered.deviation):
            return (
                f"{shares}, and those are the long ones: {failed.mean:.0f} tokens were to be expected of "
                f"them, {expected:.0f} of any row; the answers lean to short ones"
            )
        failed, answered = self._failed_prompts, self._answered_prompts
        if _is_longer(failed, answered.mean, answered.deviation):
            return (
                f"{shares}, and those have the long prompts: {failed.mean:.0f} bytes, the answered ones "
                f"{answered.mean:.0f}; the answers lean to short prompts"
            )
        return ""


def _lengths(tokens: Sums, prompts: Sums) -> RowLengths:
    return RowLengths(
        rows=tokens.count, mean_tokens=round(tokens.mean, 1), mean_prompt_bytes=round(prompts.mean, 1)
    )


def _is_longer(failed: Sums, usual: float, deviation: float) -> bool:
    beyond_chance = usual + _DEVIATIONS * deviation / math.sqrt(failed.count)
    return failed.mean > max(_TIMES * usual, beyond_chance)
