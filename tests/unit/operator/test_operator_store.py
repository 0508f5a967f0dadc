from __future__ import annotations

from typing import Any

import pytest

from draftmill_operator.observe.answers import Answers
from draftmill_operator.observe.observe import observe
from draftmill_operator.observe.store import Kind, Store
from draftmill_operator.observe.types import JobState, Problem
from draftmill_operator.run import RunIdentity
from tests.unit.operator.builders import IDENTITY

RUN_LABEL = "draftmill.dev/run-uid"
WORKER_JOB: dict[str, Any] = {"kind": "Job", "owner_name": "k25-10k-sr-worker-1"}
REPLICA_SET: dict[str, Any] = {"kind": "ReplicaSet", "owner_name": "k25-10k-sr-server-5d4f8c7b6"}


def child(
    name: str,
    role: str,
    *,
    uid: str = "",
    version: int = 1,
    owner: str = IDENTITY.uid,
    kind: str = "SynthRun",
    owner_name: str = "k25-10k",
    **rest: Any,
) -> dict[str, Any]:
    metadata = {
        "name": name,
        "namespace": "team",
        "uid": uid or f"uid-{name}",
        "resourceVersion": str(version),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {RUN_LABEL: IDENTITY.uid, "draftmill.dev/role": role, "draftmill.dev/attempt": "1"},
        "ownerReferences": [{"uid": owner, "kind": kind, "name": owner_name, "controller": True}],
        "managedFields": [{"manager": "someone"}],
    }
    return {"metadata": metadata} | rest


def names(store: Store, kind: Kind) -> list[str]:
    return [raw["metadata"]["name"] for raw in store.children(kind, IDENTITY.uid)]


def test_an_older_version_does_not_replace_a_newer_one() -> None:
    store = Store()
    assert store.put(Kind.JOB, child("j", "plan", version=10))
    assert not store.put(Kind.JOB, child("j", "plan", version=9))
    assert not store.put(Kind.JOB, child("j", "plan", version=10))
    assert store.put(Kind.JOB, child("j", "plan", version=11))


def test_the_end_of_an_older_object_does_not_remove_its_successor() -> None:
    store = Store()
    store.put(Kind.JOB, child("j", "plan", uid="new", version=5))
    assert not store.remove(Kind.JOB, child("j", "plan", uid="old", version=4))
    assert names(store, Kind.JOB) == ["j"]
    assert store.remove(Kind.JOB, child("j", "plan", uid="new", version=6))
    assert names(store, Kind.JOB) == []


def test_a_child_whose_label_changes_moves_with_it() -> None:
    store = Store()
    store.put(Kind.POD, child("p", "server"))
    moved = child("p", "server", version=2)
    moved["metadata"]["labels"][RUN_LABEL] = "other"
    store.put(Kind.POD, moved)
    assert names(store, Kind.POD) == []


def test_managed_fields_are_not_kept() -> None:
    store = Store()
    store.put(Kind.JOB, child("j", "plan"))
    kept = store.get(Kind.JOB, "team", "j")
    assert kept is not None
    assert "managedFields" not in kept["metadata"]


def seen(store: Store, **findings: Problem) -> Any:
    return observe(IDENTITY, store, Answers(), findings)


def test_a_job_of_another_owner_is_not_the_runs() -> None:
    store = Store()
    store.put(Kind.JOB, child("j", "plan", owner="somebody"))
    assert seen(store).plan is None


def test_pods_go_to_the_job_that_owns_them_and_strays_are_known() -> None:
    store = Store()
    store.put(Kind.JOB, child("w", "worker", uid="job"))
    store.put(Kind.POD, child("mine", "worker", owner="job", **WORKER_JOB))
    store.put(Kind.POD, child("stray", "worker", owner="gone", **WORKER_JOB))
    store.put(Kind.POD, child("server", "server", owner="replicaset", **REPLICA_SET))
    observed = seen(store)
    (worker,) = observed.workers
    assert [pod.name for pod in worker.pods] == ["mine"]
    assert [pod.name for pod in observed.stray_worker_pods] == ["stray"]
    assert [pod.name for pod in observed.servers.pods] == ["server"]


@pytest.mark.parametrize(
    "owner",
    [
        {"owner": IDENTITY.uid},
        {"owner": "someone", "kind": "Job", "owner_name": "backup-1"},
        {"owner": "someone", "kind": "ReplicaSet", "owner_name": "k25-10k-sr-worker-1"},
        {"owner": "someone", "kind": "ReplicaSet", "owner_name": "web-5d4f8c7b6"},
        {"owner": "someone", "kind": "StatefulSet", "owner_name": "k25-10k-sr-server-0"},
    ],
)
def test_a_pod_that_only_carries_the_labels_is_neither_server_nor_worker(owner: dict[str, Any]) -> None:
    store = Store()
    store.put(Kind.POD, child("copied-server", "server", **owner))
    store.put(Kind.POD, child("copied-worker", "worker", **owner))
    unowned = child("unowned", "worker")
    del unowned["metadata"]["ownerReferences"]
    store.put(Kind.POD, unowned)
    observed = seen(store)
    assert observed.servers.pods == ()
    assert observed.stray_worker_pods == ()


PULLED_IN_VAIN = {"reason": "ErrImagePull", "message": "not found"}
BACKING_OFF = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "i"'}


def waiting_pod(waiting: dict[str, str], **metadata: Any) -> dict[str, Any]:
    status = {"containerStatuses": [{"name": "server", "ready": False, "state": {"waiting": waiting}}]}
    return child("server", "server", owner="replicaset", status=status, **REPLICA_SET, **metadata)


def test_why_an_image_cannot_be_pulled_is_known_as_long_as_its_kubelet_backs_off() -> None:
    store = Store()
    turns = [PULLED_IN_VAIN, BACKING_OFF, BACKING_OFF, PULLED_IN_VAIN, BACKING_OFF]
    for version, turn in enumerate(turns, start=1):
        store.put(Kind.POD, waiting_pod(turn, version=version))
        assert seen(store).servers.current_problem == Problem("ImagePullBackOff", "not found")
    store.put(Kind.POD, waiting_pod(PULLED_IN_VAIN | {"message": "denied"}, version=10))
    store.put(Kind.POD, waiting_pod(BACKING_OFF, version=11))
    assert seen(store).servers.current_problem == Problem("ImagePullBackOff", "denied")


def test_why_the_image_of_an_earlier_pod_could_not_be_pulled_says_nothing_about_another_one() -> None:
    store = Store()
    store.put(Kind.POD, waiting_pod(PULLED_IN_VAIN, uid="old"))
    store.put(Kind.POD, waiting_pod(BACKING_OFF, uid="new", version=2))
    assert seen(store).servers.current_problem == Problem("ImagePullBackOff", BACKING_OFF["message"])


def test_a_vanished_pod_is_remembered_until_its_job_goes() -> None:
    store = Store()
    store.put(Kind.JOB, child("w", "worker", uid="job"))
    store.put(Kind.POD, child("p", "worker", owner="job"))
    assert not seen(store).workers[0].lost_pod
    store.remove(Kind.POD, child("p", "worker", owner="job", version=2))
    assert seen(store).workers[0].lost_pod
    store.remove(Kind.JOB, child("w", "worker", uid="job", version=2))
    assert not store.has_lost_a_pod("job")


def test_a_job_that_a_queue_takes_back_has_lost_no_pod() -> None:
    store = Store()
    store.put(Kind.JOB, child("w", "worker", uid="job"))
    store.put(Kind.POD, child("p", "worker", owner="job"))
    store.remove(Kind.POD, child("p", "worker", owner="job", version=2))
    for held, condition in ((True, "True"), (False, "False")):
        status = {"conditions": [{"type": "Suspended", "status": condition}]}
        version = 2 + (not held)
        store.put(
            Kind.JOB, child("w", "worker", uid="job", version=version, status=status, spec={"suspend": held})
        )
        (worker,) = seen(store).workers
        assert (worker.suspended, worker.lost_pod) == (held, False)
        assert (worker.current_problem is not None) == held


def test_the_job_controllers_verdict_is_read() -> None:
    store = Store()
    conditions = [{"type": "Failed", "status": "True", "reason": "PodFailurePolicy", "message": "code 2"}]
    store.put(Kind.JOB, child("p", "plan", status={"conditions": conditions, "failed": 1}))
    plan = seen(store).plan
    assert plan.state is JobState.FAILED
    assert plan.verdict == Problem("PodFailurePolicy", "code 2")


def test_findings_explain_what_does_not_explain_itself() -> None:
    store = Store()
    store.put(Kind.JOB, child("p", "plan", uid="job"))
    found = Problem("FailedCreate", "exceeded quota")
    assert observe(IDENTITY, store, Answers(), {"job": found}).plan.current_problem == found  # type: ignore[union-attr]


def test_pods_refused_to_the_deployment_are_the_servers_problem() -> None:
    store = Store()
    conditions = [{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "quota"}]
    store.put(Kind.DEPLOYMENT, child("s", "server", status={"conditions": conditions}))
    assert seen(store).servers.current_problem == Problem("FailedCreate", "quota")


def test_children_of_a_run_of_the_same_name_with_another_uid_are_not_seen() -> None:
    store = Store()
    store.put(Kind.JOB, child("j", "plan"))
    assert observe(RunIdentity(IDENTITY.key, uid="reborn"), store, Answers(), {}).plan is None
