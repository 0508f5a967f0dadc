from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from draftmill_operator.observe.store import Kind, Store
from draftmill_operator.progress import ProgressPoller
from draftmill_operator.run import RunKey
from tests.support.played import ProgressServer, answer, progress_server
from tests.unit.operator.builders import IDENTITY

WORKER_LABELS = {
    "draftmill.dev/kind": "synthrun",
    "draftmill.dev/run-uid": IDENTITY.uid,
    "draftmill.dev/role": "worker",
}


@pytest.fixture
def worker() -> Iterator[ProgressServer]:
    with progress_server(answer(7, 100)) as server:
        yield server


def thing(name: str, uid: str, owner: str, **rest: Any) -> dict[str, Any]:
    metadata = {
        "name": name,
        "namespace": IDENTITY.key.namespace,
        "uid": uid,
        "resourceVersion": "1",
        "labels": WORKER_LABELS,
        "annotations": {"draftmill.dev/run-name": IDENTITY.key.name},
        "ownerReferences": [{"uid": owner, "kind": "Job", "name": "j", "controller": True}],
    }
    return {"metadata": metadata} | rest


def store_with(address: str, *, pod_of: str = "job", run_uid: str = IDENTITY.uid) -> Store:
    store = Store()
    store.put(Kind.SYNTH_RUN, thing(IDENTITY.key.name, run_uid, "nobody"))
    store.put(Kind.JOB, thing("job", "job", IDENTITY.uid))
    store.put(Kind.POD, thing("pod", "pod", pod_of, status={"phase": "Running", "podIP": address}))
    return store


async def ask(store: Store) -> tuple[ProgressPoller, list[RunKey]]:
    changed: list[RunKey] = []
    poller = ProgressPoller(store, changed.append)
    await poller.ask_all()
    return poller, changed


async def test_a_worker_of_a_known_run_is_asked_and_its_run_called(worker: ProgressServer) -> None:
    poller, changed = await ask(store_with(worker.address))
    assert poller.answers.of_pod("pod") == worker.answer
    assert poller.answers.of_run(IDENTITY.uid) == {"0/1": worker.answer}
    assert changed == [IDENTITY.key]


@pytest.mark.parametrize("wrong", [{"pod_of": "someone-elses"}, {"run_uid": "reborn"}])
async def test_a_pod_that_only_carries_the_labels_is_never_asked(
    wrong: dict[str, str], worker: ProgressServer
) -> None:
    poller, changed = await ask(store_with(worker.address, **wrong))
    assert worker.asked == 0
    assert (poller.answers.of_pod("pod"), changed) == (None, [])


async def test_of_pods_that_work_as_one_the_first_is_asked(worker: ProgressServer) -> None:
    store = store_with(worker.address)
    for rank in ("1", "2"):
        metadata = thing(f"rank-{rank}", f"rank-{rank}", "job")["metadata"]
        metadata["annotations"] |= {"batch.kubernetes.io/job-completion-index": rank}
        store.put(Kind.POD, {"metadata": metadata, "status": {"phase": "Running", "podIP": worker.address}})
    await ask(store)
    assert worker.asked == 1


async def test_a_redirect_is_not_followed(worker: ProgressServer) -> None:
    with progress_server(answer(99, 100)) as elsewhere:
        worker.redirect = f"http://{elsewhere.address}:9090/progress"
        poller, _ = await ask(store_with(worker.address))
        assert (worker.asked, elsewhere.asked) == (1, 0)
    assert poller.answers.of_pod("pod") is None
