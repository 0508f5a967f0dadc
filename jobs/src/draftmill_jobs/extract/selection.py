"""Which records become rows, and how much of each. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from draftmill_api.extractjob import ExtractJobConfig
from draftmill_api.record import RecordStatus
from draftmill_api.v1alpha1.extractrun import OnLongRow
from draftmill_api.v1alpha1.extractstatus import SkippedRows
from draftmill_api.v1alpha1.status import ModelFacts


class LeftOut(StrEnum):
    """Why a record becomes no row: the fields of `SkippedRows`."""

    STATUS = "status"
    LONG = "long"
    NO_ANSWER = "no_answer"
    LIMIT = "limit"


@dataclass(frozen=True, slots=True)
class Rules:
    """What decides about a record.

    Attributes:
        max_tokens: Longest row that is wanted; None without a limit.
        context_length: Of the model; None when it states none. A server takes prompts that are shorter, and
            the state of a row's last token is never used: so a row that fills the context loses that token.
    """

    statuses: frozenset[RecordStatus]
    max_tokens: int | None
    on_long_row: OnLongRow
    context_length: int | None

    @classmethod
    def of(cls, config: ExtractJobConfig, model: ModelFacts) -> Rules:
        """The rules that a config makes for a model."""
        return cls(
            statuses=frozenset(config.row_filter),
            max_tokens=config.max_row_tokens,
            on_long_row=config.on_long_row,
            context_length=model.context_length,
        )

    def kept_tokens(self, status: RecordStatus, prompt_tokens: int, tokens: int) -> int | LeftOut:
        """How many of a record's tokens are kept, from the left, or why it is left out.

        Args:
            status: Of the record.
            prompt_tokens: Tokens before the answer.
            tokens: Tokens of prompt and answer.
        """
        if status not in self.statuses:
            return LeftOut.STATUS
        kept = tokens
        if self.max_tokens is not None and tokens > self.max_tokens:
            if self.on_long_row is OnLongRow.SKIP:
                return LeftOut.LONG
            kept = self.max_tokens
        if self.context_length is not None:
            kept = min(kept, self.context_length - 1)
        return kept if kept > prompt_tokens else LeftOut.NO_ANSWER


@dataclass(slots=True)
class Survey:
    """The account of the records: what a plan states, and what the later steps must find again."""

    max_rows: int | None
    rows: int = 0
    tokens: int = 0
    longest_row: int = 0
    cut_rows: int = 0
    cut_tokens: int = 0
    _left_out: dict[LeftOut, int] = field(default_factory=dict)

    def take(self, kept: int | LeftOut, tokens: int) -> bool:
        """Counts a record of so many tokens. Whether it is a row."""
        if not isinstance(kept, LeftOut) and self.max_rows is not None and self.rows >= self.max_rows:
            kept = LeftOut.LIMIT
        if isinstance(kept, LeftOut):
            self._left_out[kept] = self._left_out.get(kept, 0) + 1
            return False
        self.rows += 1
        self.tokens += kept
        self.longest_row = max(self.longest_row, kept)
        self.cut_rows += kept < tokens
        self.cut_tokens += tokens - kept
        return True

    @property
    def skipped(self) -> SkippedRows:
        """The records that are no rows, by why."""
        return SkippedRows(**{reason.value: count for reason, count in self._left_out.items()})
