from __future__ import annotations

from typing import Any, cast

import pytest

from draftmill_api.v1alpha1.status import Phase
from draftmill_operator.apply import Applier, ChildError
from draftmill_operator.decide.types import Decision, Wanted
from draftmill_operator.kube.writes import Kube
from draftmill_operator.observe.store import Kind, Store
from draftmill_operator.render.metadata import Manifest
from tests.unit.operator.builders import IDENTITY, situation

WANTED: Manifest = {
    "kind": "ConfigMap",
    "metadata": {"name": "k25-10k-sr-config", "namespace": IDENTITY.key.namespace},
}


class ReadOnly:
    """A cluster in which every write is a fault of the test's subject."""


def there(owner: dict[str, Any] | None, **metadata: Any) -> Store:
    store = Store()
    owners = [owner | {"controller": True}] if owner is not None else []
    base = {"uid": "u", "resourceVersion": "1", "ownerReferences": owners}
    store.put(Kind.CONFIG_MAP, {"metadata": WANTED["metadata"] | base | metadata})
    return store


PREDECESSOR = {"kind": "SynthRun", "name": IDENTITY.key.name, "uid": "earlier"}
OTHER_RUN = {"kind": "SynthRun", "name": "other", "uid": "other"}
LEAVING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("store", "reason", "words"),
    [
        (there(None), "NameConflict", "ConfigMap k25-10k-sr-config exists"),
        (there(OTHER_RUN), "NameConflict", "Delete it, or create the run under another name"),
        (there(PREDECESSOR), "WaitingForRemoval", "waiting for ConfigMap k25-10k-sr-config to be gone"),
        (there(PREDECESSOR, **LEAVING), "WaitingForRemoval", "to be gone"),
        (there(None, **LEAVING), "WaitingForRemoval", "to be gone"),
    ],
    ids=["nobody's", "another run's", "an earlier run's", "an earlier run's, leaving", "leaving"],
)
async def test_an_object_in_the_way_is_left_alone_and_told(store: Store, reason: str, words: str) -> None:
    applier = Applier(cast(Kube, ReadOnly()), store)
    decision = Decision(Phase.PLANNING, Wanted(config=True, servers=True))
    with pytest.raises(ChildError) as told:
        await applier.apply(situation(), decision, [WANTED])
    assert told.value.problem.reason == reason
    assert words in told.value.problem.message
