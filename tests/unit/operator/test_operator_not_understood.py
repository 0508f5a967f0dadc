from __future__ import annotations

from typing import Any, cast

import pytest

from draftmill_operator.kube.errors import ApiError
from draftmill_operator.kube.writes import Kube
from draftmill_operator.observe.store import Kind, Store
from draftmill_operator.progress import ProgressPoller
from draftmill_operator.queue import RetryLater
from draftmill_operator.reconcile import LOOK_AGAIN_AT_NOT_UNDERSTOOD, Clock, Reconciler
from draftmill_operator.run import RunIdentity, RunKey
from draftmill_operator.settings import OperatorSettings
from tests.support.synthruns import smallest_synth_run
from tests.unit.operator.builders import IDENTITY, NOW

SETTINGS = OperatorSettings.model_validate({"jobImage": "jobs:1", "trainerImage": "jobs-train:1"})
PLAN_OF_A_NEWER_OPERATOR = {"plan": {"rows": 7, "shards": 3}}


class StatusOnly:
    """A cluster of which only the run's status can be written."""

    def __init__(self, store: Store, refusal: ApiError | None = None) -> None:
        self.store = store
        self.refusal = refusal
        self.written: list[dict[str, Any]] = []

    async def write_status(self, run: RunIdentity, status: dict[str, Any]) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.written.append(status)
        known = self.store.run(run.key)
        assert known is not None
        metadata = known["metadata"] | {"resourceVersion": str(1 + len(self.written))}
        self.store.put(Kind.SYNTH_RUN, known | {"metadata": metadata, "status": status})


def synth_run(**parts: Any) -> dict[str, Any]:
    manifest = smallest_synth_run(IDENTITY.key.name)
    metadata = {
        "name": IDENTITY.key.name,
        "namespace": IDENTITY.key.namespace,
        "uid": IDENTITY.uid,
        "generation": 3,
        "resourceVersion": "1",
    }
    return manifest | {"metadata": metadata} | parts


def child(role: str, **parts: Any) -> dict[str, Any]:
    metadata = {
        "name": f"k25-10k-sr-{role}",
        "namespace": IDENTITY.key.namespace,
        "uid": f"uid-{role}",
        "resourceVersion": "1",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {
            "draftmill.dev/run-uid": IDENTITY.uid,
            "draftmill.dev/role": role,
            "draftmill.dev/attempt": "one",
        },
        "ownerReferences": [{"uid": IDENTITY.uid, "controller": True}],
    }
    return {"metadata": metadata} | parts


def reconciler(store: Store, cluster: StatusOnly) -> Reconciler:
    changed: list[RunKey] = []
    poller = ProgressPoller(store, changed.append)
    return Reconciler(SETTINGS, store, cast(Kube, cluster), poller, Clock(now=lambda: NOW))


async def reported(store: Store) -> dict[str, Any]:
    """The status that two passes leave; the second writes nothing."""
    cluster = StatusOnly(store)
    passes = reconciler(store, cluster)
    assert await passes.reconcile(IDENTITY.key) == LOOK_AGAIN_AT_NOT_UNDERSTOOD
    assert await passes.reconcile(IDENTITY.key) == LOOK_AGAIN_AT_NOT_UNDERSTOOD
    (status,) = cluster.written
    (condition,) = status["conditions"]
    assert (condition["type"], condition["status"]) == ("Progressing", "False")
    assert (condition["reason"], condition["message"]) == (status["reason"], status["message"])
    return status


async def test_a_spec_that_is_not_understood_is_told_in_the_status() -> None:
    store = Store()
    store.put(Kind.SYNTH_RUN, synth_run(spec=smallest_synth_run("any")["spec"] | {"newField": 1}))
    status = await reported(store)
    assert status["reason"] == "SpecNotUnderstood"
    assert status["message"].startswith("spec.newField: ")


async def test_a_status_that_does_not_parse_is_told_in_it_and_nothing_of_it_is_lost() -> None:
    store = Store()
    store.put(Kind.SYNTH_RUN, synth_run(status=PLAN_OF_A_NEWER_OPERATOR))
    status = await reported(store)
    assert status["reason"] == "StatusNotUnderstood"
    assert status["plan"] == PLAN_OF_A_NEWER_OPERATOR["plan"]


@pytest.mark.parametrize("data", [None, {}, {"defaults.json": "{"}, {"defaults.json": '{"jobImage": 1}'}])
async def test_frozen_defaults_that_were_changed_are_told_in_the_status(data: dict[str, str] | None) -> None:
    store = Store()
    store.put(Kind.SYNTH_RUN, synth_run())
    store.put(Kind.CONFIG_MAP, child("defaults", data=data))
    status = await reported(store)
    assert status["reason"] == "ChildNotUnderstood"
    assert "ConfigMap k25-10k-sr-defaults" in status["message"]


async def test_a_job_whose_label_was_changed_is_told_in_the_status() -> None:
    store = Store()
    store.put(Kind.SYNTH_RUN, synth_run())
    store.put(Kind.JOB, child("worker"))
    assert "Job k25-10k-sr-worker has the label" in (await reported(store))["message"]


@pytest.mark.parametrize(
    "ended",
    [
        {"status": {"phase": "Succeeded", "completionTime": "2026-01-01T00:00:00Z", "newField": 1}},
        {"metadata": synth_run()["metadata"] | {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {}},
    ],
)
async def test_a_run_that_is_over_is_left_as_it_ended(ended: dict[str, Any]) -> None:
    store = Store()
    store.put(Kind.SYNTH_RUN, synth_run(**ended))
    cluster = StatusOnly(store)
    await reconciler(store, cluster).reconcile(IDENTITY.key)
    assert cluster.written == []


async def test_a_report_that_the_server_refuses_is_tried_again_later() -> None:
    store = Store()
    store.put(Kind.SYNTH_RUN, synth_run(status=PLAN_OF_A_NEWER_OPERATOR))
    cluster = StatusOnly(store, ApiError(503, "ServiceUnavailable", "busy"))
    with pytest.raises(RetryLater, match="busy"):
        await reconciler(store, cluster).reconcile(IDENTITY.key)
