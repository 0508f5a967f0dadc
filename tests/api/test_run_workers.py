"""Several workers: each has its share, one that dies is alone in that, another number starts all anew."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from draftmill_api import names
from tests.api.operator_bed import Bed
from tests.support.played import Player, answer, finish_message, plan_message, progress_server, worker_message
from tests.support.played_node import PlayedNode, played_node
from tests.support.waiting import quiet_for, until

pytestmark = pytest.mark.api


def test_another_number_of_workers_starts_when_the_old_ones_are_gone(bed: Bed) -> None:
    run = bed.create("shared")
    with played_node(bed.kube, "sharing") as node:
        run.to_running(node=node)
        assert attempts(bed, run) == {"0/1": 1}
        exchange(bed, run, node, {"0/3": 2, "1/3": 1, "2/3": 1})
        exchange(bed, run, node, {"0/2": 3, "1/2": 2})
        until(lambda: len(run.jobs("worker")) == 2, 60, "no Job of the old ones is left")


def test_one_of_three_workers_that_dies_is_started_again_alone_and_their_counts_add_up(bed: Bed) -> None:
    run = bed.create("trio", generation={"workers": 3})
    run.end("plan", message=plan_message(90))
    run.make_ready("server")
    until(lambda: len(workers(bed, run)) == 3, 60, "three workers")
    with ExitStack() as stack:
        progress = {}
        for pod in workers(bed, run):
            share = share_of(pod)
            said = answer(10 * (1 + int(share[0])), 30, worker=share)
            progress[share] = stack.enter_context(progress_server(said))
            run.make_pod_ready(pod, progress[share].address)
        status = bed.kube.wait("trio", lambda s: s.get("progress", {}).get("done") == 60, within=60)
        assert (status["progress"]["total"], status["progress"]["ok"]) == (90, 60)
        assert status["progress"]["tokensPerSecond"] == 3600
        (dataset,) = status["datasets"]
        assert (dataset["done"], dataset["total"]) == (60, 90)

        before = {share_of(pod): pod for pod in workers(bed, run)}
        run.end_pod(before["1/3"], exit_code=137)
        until(lambda: attempts(bed, run) == {"0/3": 1, "1/3": 2, "2/3": 1}, 60, "worker 1 again")
        after = {share_of(pod): pod for pod in workers(bed, run)}
        for share in ("0/3", "2/3"):
            assert after[share].metadata.uid == before[share].metadata.uid
        run.make_pod_ready(after["1/3"], progress["1/3"].address)
        progress["1/3"].answer = answer(25, 30, worker="1/3")
        bed.kube.wait("trio", lambda s: s["progress"]["done"] == 65, within=60)
        counts = {record["worker"]: record["count"] for record in bed.kube.status("trio")["attempts"]}
        assert counts == {0: 1, 1: 2, 2: 1}

        for pod in workers(bed, run)[:2]:
            run.end_pod(pod, message=worker_message(30, 30))
        bed.kube.wait("trio", lambda s: sum(record["succeeded"] for record in s["attempts"]) == 2, within=60)
        assert run.jobs("finish") == [], "one is still at work"
        (last,) = workers(bed, run)
        run.end_pod(last, message=worker_message(30, 30))
    run.end("finish", message=finish_message(90))
    assert bed.kube.wait_phase("trio", "Succeeded", within=60)["progress"]["done"] == 90


@pytest.mark.parametrize(
    ("mode", "shared"), [("ReadWriteOnce", ["kubernetes.io/hostname"]), ("ReadWriteMany", [])]
)
def test_workers_share_one_node_where_no_other_can_mount_their_claim(
    bed: Bed, mode: str, shared: list[str]
) -> None:
    name = f"held-{mode.lower()}"
    bed.kube.core.create_namespaced_persistent_volume_claim(
        bed.kube.namespace,
        {
            "metadata": {"name": name},
            "spec": {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}},
        },
    )
    volumes = {role: {"persistentVolumeClaim": {"claimName": name}} for role in ("models", "data")}
    run = bed.create(name, storage=volumes, generation={"workers": 3})
    plan = run.end("plan", message=plan_message(90))
    assert kept_beside(plan) == []
    run.make_ready("server")
    until(lambda: len(workers(bed, run)) == 3, 60, "three workers")
    for pod in workers(bed, run):
        assert kept_beside(pod) == shared


def kept_beside(pod: Any) -> list[str]:
    """The topology keys by which a pod has to stand beside the other workers of its run."""
    affinity = pod.spec.affinity
    terms = affinity.pod_affinity.required_during_scheduling_ignored_during_execution if affinity else []
    for term in terms:
        assert term.label_selector.match_labels.items() <= pod.metadata.labels.items(), "it is one of them"
    return [term.topology_key for term in terms]


def exchange(bed: Bed, run: Player, node: PlayedNode, wanted: dict[str, int]) -> None:
    """Ask for another number of workers; `wanted` is the attempt of each share that follows."""
    old = workers(bed, run)
    node.lets_go = False
    bed.edit(run.run, generation={"workers": len(wanted)})
    until(lambda: not workers(bed, run), 60, "the old ones go")
    quiet_for(1)
    assert workers(bed, run) == [], "none starts beside them"
    *others, last = old
    for pod in others:
        node.let_go(pod)
    bed.make_pass(run.run)
    assert workers(bed, run) == []
    node.let_go(last)
    node.lets_go = True
    until(lambda: attempts(bed, run) == wanted, 60, lambda: f"{wanted}: {attempts(bed, run)}")
    for pod in workers(bed, run):
        node.take(pod)
        run.make_pod_ready(pod)


def workers(bed: Bed, run: Player) -> list[Any]:
    """Pods of workers that have not ended."""
    pods = bed.kube.pods(run.run, "worker")
    return [pod for pod in pods if pod.status.phase in {"Pending", "Running"}]


def attempts(bed: Bed, run: Player) -> dict[str, int]:
    return {share_of(pod): attempt_of(pod) for pod in workers(bed, run)}


def share_of(pod: Any) -> str:
    environment = {variable.name: variable.value for variable in pod.spec.containers[0].env}
    return str(environment[names.WORKER_VARIABLE])


def attempt_of(pod: Any) -> int:
    return int(pod.metadata.labels[names.LABEL_ATTEMPT])
