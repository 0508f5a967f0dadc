"""The earlier run that a run takes its input from."""

from __future__ import annotations

from draftmill_api.v1alpha1.status import ConditionStatus, ConditionType
from draftmill_operator.kinds.registry import KINDS
from draftmill_operator.observe.store import Store
from draftmill_operator.observe.types import Problem, Upstream
from draftmill_operator.run import NotUnderstoodError, RunKey


def observe_upstream(key: RunKey, store: Store) -> Upstream:
    """Whether there is such a run, and what became of it; one that cannot be parsed is not Complete yet."""
    raw = store.run(key)
    if raw is None:
        return Upstream(key)
    kind = KINDS[key.kind]
    try:
        run = kind.parse(raw)
    except NotUnderstoodError:
        return Upstream(key, exists=True)
    ended = {item.type: item for item in run.status.conditions if item.status is ConditionStatus.TRUE}
    failed = ended.get(ConditionType.FAILED)
    return Upstream(
        key,
        exists=True,
        published=kind.published(run) if ConditionType.COMPLETE in ended else None,
        failure=Problem(failed.reason, failed.message) if failed is not None else None,
    )
