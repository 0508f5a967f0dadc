"""Several workers' progress as one. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from draftmill_api.base import seconds
from draftmill_api.names import TERMINATION_MESSAGE_CUT
from draftmill_api.v1alpha1.status import MOST_FAILURES, Counts, DatasetProgress, Failure, RunProgress

_TWO_DIGITS = 100.0


def progress_together(parts: Sequence[RunProgress]) -> RunProgress:
    """Counts and rates added; the time to the end is that of the slowest worker."""
    if len(parts) == 1:
        return parts[0]
    counts = _sums(parts)
    requests = sum(float(part.requests_per_second or 0) for part in parts)
    tokens = [part.tokens_per_second for part in parts if part.tokens_per_second is not None]
    return RunProgress(
        **counts,
        retried=sum(part.retried for part in parts),
        in_flight=sum(part.in_flight for part in parts),
        requests_per_second=two_digits(requests) if requests else "",
        tokens_per_second=sum(tokens) if tokens else None,
        average_completion_tokens=counts["completion_tokens"] // counts["done"] if counts["done"] else None,
        eta=_latest(part.eta for part in parts),
        eta_low=_latest(part.eta_low for part in parts),
        eta_high=_latest(part.eta_high for part in parts),
    )


def datasets_together(parts: Sequence[Sequence[DatasetProgress]]) -> list[DatasetProgress]:
    """Counts of datasets of one name added, in the order of the first worker."""
    by_name: dict[str, list[DatasetProgress]] = {}
    for dataset in (dataset for part in parts for dataset in part):
        by_name.setdefault(dataset.name, []).append(dataset)
    return [DatasetProgress(name=name, **_sums(found)) for name, found in by_name.items()]


def failures_together(parts: Sequence[Sequence[Failure]]) -> list[Failure]:
    """Failures of one reason added, each with its first sample, the most frequent first."""
    counts: Counter[str] = Counter()
    samples: dict[str, Failure] = {}
    for failure in (failure for part in parts for failure in part):
        counts[failure.reason] += failure.count
        samples.setdefault(failure.reason, failure)
    return [
        samples[reason].model_copy(update={"count": count})
        for reason, count in counts.most_common(MOST_FAILURES)
    ]


def filled_in(failures: Sequence[Failure], recorded: Sequence[Failure]) -> list[Failure]:
    """Failures of a finish, with what its termination message had no room for from those recorded before."""
    known = {failure.reason: failure for failure in recorded}
    return [_filled_in(failure, known.get(failure.reason, failure)) for failure in failures]


def _filled_in(failure: Failure, known: Failure) -> Failure:
    """The remedy is the reason's; the words are those about one row, and go on where they were cut."""
    begins = failure.message.removesuffix(TERMINATION_MESSAGE_CUT)
    is_same = known.id == failure.id and known.message.startswith(begins)
    return failure.model_copy(
        update={
            "message": known.message if is_same else failure.message,
            "remedy": failure.remedy or known.remedy,
        }
    )


def _latest(times: Iterable[str]) -> str:
    """The longest of several times to the end, for all is over with the last; empty when none is known."""
    return max((time for time in times if time), key=seconds, default="")


def two_digits(value: float) -> str:
    """A positive number with two digits that count: 0.63, 4.2, 130."""
    text = f"{value:.2g}"
    return f"{float(text):.0f}" if value >= _TWO_DIGITS else text


def _sums(parts: Sequence[Counts]) -> dict[str, int]:
    return {name: sum(getattr(part, name) for part in parts) for name in Counts.model_fields}
