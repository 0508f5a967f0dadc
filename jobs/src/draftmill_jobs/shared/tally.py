"""Counting rows by what became of them: the one place where the accounts are kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from draftmill_api.record import RecordStatus
from draftmill_api.v1alpha1.status import Counts, DatasetProgress, Failure
from draftmill_jobs.engines.remedies import remedy_for
from draftmill_jobs.shared.lengths import Lengths

_MESSAGE_LIMIT = 300  # characters of what was said about a row


class Tally:
    """The account of one dataset.

    Attributes:
        done: Rows with a record.
    """

    def __init__(self, name: str, total: int) -> None:
        self.name = name
        self.total = total
        self.done = 0
        self.statuses: Counter[RecordStatus] = Counter()
        self.finish_reasons: Counter[str] = Counter()
        self.errors = 0
        self.skipped = 0
        self.not_admitted = 0
        self.completion_tokens = 0
        self.lengths = Lengths()

    def add_record(self, status: RecordStatus, finish_reason: str, completion_tokens: int) -> None:
        """Counts a row that has a record."""
        self.done += 1
        self.statuses[status] += 1
        self.finish_reasons[finish_reason] += 1
        self.completion_tokens += completion_tokens
        self.lengths.add(completion_tokens)

    @property
    def accounted(self) -> int:
        """Rows of which it is known what became of them."""
        return self.done + self.errors + self.skipped + self.not_admitted

    def progress(self) -> DatasetProgress:
        """The account as it stands in status and summary."""
        truncated = (RecordStatus.TRUNCATED, RecordStatus.TRUNCATED_REASONING, RecordStatus.REPETITION)
        return DatasetProgress(
            name=self.name,
            done=self.done,
            total=self.total,
            ok=self.statuses[RecordStatus.OK],
            truncated=sum(self.statuses[status] for status in truncated),
            malformed=self.statuses[RecordStatus.MALFORMED],
            errors=self.errors,
            skipped=self.skipped,
            not_admitted=self.not_admitted,
            completion_tokens=self.completion_tokens,
        )


class FailureTally:
    """Reasons for which rows failed, each with the first row that failed so."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._first: dict[str, Failure] = {}

    def add(self, dead_letter: dict[str, Any]) -> None:
        """Counts a dead letter."""
        reason = dead_letter["reason"]
        self.counts[reason] += 1
        if reason not in self._first:
            message = str(dead_letter["message"])[:_MESSAGE_LIMIT]
            self._first[reason] = Failure(
                reason=reason,
                count=1,
                id=dead_letter["id"][:96],
                message=message,
                remedy=remedy_for(reason),
            )

    def update(self, other: FailureTally) -> None:
        """Counts what another one has counted; a reason that both have keeps its row."""
        self.counts.update(other.counts)
        self._first = other._first | self._first

    def most_common(self, limit: int | None = None) -> list[Failure]:
        """The most frequent reasons first; all of them when there is no limit."""
        return [
            self._first[reason].model_copy(update={"count": count})
            for reason, count in self.counts.most_common(limit)
        ]


def sum_counts(parts: Iterable[Counts]) -> dict[str, int]:
    """The counts of several datasets, added."""
    sums = dict.fromkeys(Counts.model_fields, 0)
    for part in parts:
        for name in sums:
            sums[name] += getattr(part, name)
    return sums
