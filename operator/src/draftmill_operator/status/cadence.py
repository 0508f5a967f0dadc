"""When a new status is worth a write."""

from __future__ import annotations

from draftmill_api.base import ApiModel
from draftmill_api.v1alpha1.runstatus import AnyStatus

PROGRESS_INTERVAL = 5.0
CROWDED_INTERVAL = 30.0
CROWD = 50
_PROGRESS_FIELDS = ("progress", "datasets", "failures")
_VOLATILE = {
    "in_flight",
    "staged_bytes",
    "requests_per_second",
    "tokens_per_second",
    "average_completion_tokens",
    "eta",
    "eta_low",
    "eta_high",
}


def progress_interval(running_runs: int) -> float:
    """Least seconds between two writes of progress alone, for each run."""
    return CROWDED_INTERVAL if running_runs > CROWD else PROGRESS_INTERVAL


def worth_writing(old: AnyStatus, new: AnyStatus) -> bool:
    """Whether the statuses differ in meaning: rates alone do not count."""
    if only_progress_differs(old, new):
        return _counts(old.progress) != _counts(new.progress)
    return old != new


def only_progress_differs(old: AnyStatus, new: AnyStatus) -> bool:
    """Whether nothing but the numbers of progress changed; a warning's sentence has such numbers too."""
    fields = _PROGRESS_FIELDS if old.reason != new.reason else (*_PROGRESS_FIELDS, "message")
    there = [field for field in fields if field in type(new).model_fields]
    return new.model_copy(update={field: getattr(old, field) for field in there}) == old


def _counts(progress: ApiModel | None) -> object:
    return progress.model_dump(exclude=_VOLATILE) if progress is not None else None
