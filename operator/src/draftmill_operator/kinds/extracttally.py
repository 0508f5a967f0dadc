"""Arithmetic of an ExtractRun's progress."""

from __future__ import annotations

from collections.abc import Sequence

from draftmill_api.base import seconds
from draftmill_api.progress import Progress, WorkerResult
from draftmill_api.v1alpha1.extractrun import ExtractProgress
from draftmill_operator.kinds.base import Tally

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_SUMMED = ("rows", "total", "tokens", "bytes", "quarantined", "retried", "in_flight", "staged_bytes")


class ExtractTally(Tally[ExtractProgress]):
    """Rows, tokens and bytes in the store, and the rate at which they come."""

    def of_answer(self, answer: Progress) -> ExtractProgress:
        """What the extractor says."""
        return answer.extraction or ExtractProgress()

    def of_result(self, result: WorkerResult) -> ExtractProgress:
        """What the extractor said last."""
        return result.extraction or ExtractProgress()

    def together(self, parts: Sequence[ExtractProgress]) -> ExtractProgress:
        """Counts and rates added; the time to the end is that of the slowest worker."""
        if len(parts) == 1:
            return parts[0]
        sums = {name: sum(getattr(part, name) for part in parts) for name in _SUMMED}
        rates = [part.tokens_per_second for part in parts if part.tokens_per_second is not None]
        return ExtractProgress(
            **sums,
            size=size_for_people(sums["bytes"]),
            tokens_per_second=sum(rates) if rates else None,
            eta=max((part.eta for part in parts if part.eta), key=seconds, default=""),
        )

    def at_rest(self, progress: ExtractProgress) -> ExtractProgress:
        """Counts without rates."""
        return progress.model_copy(
            update={"in_flight": 0, "staged_bytes": 0, "tokens_per_second": None, "eta": ""}
        )

    def done(self, progress: ExtractProgress) -> int:
        """Rows in the store."""
        return progress.rows

    def accounted(self, progress: ExtractProgress) -> int:
        """Rows that need no further try."""
        return progress.rows + progress.quarantined


def size_for_people(size: int) -> str:
    """A size in decimal units with at most three digits that count: 828 GB, 1.4 TB."""
    value, unit = float(size), 0
    while value >= 999.5 and unit + 1 < len(_UNITS):
        value, unit = value / 1000, unit + 1
    return f"{value:.3g} {_UNITS[unit]}"
