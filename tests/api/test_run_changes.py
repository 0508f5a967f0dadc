"""Edits of a running run: what they change at once, what they start anew, and what they leave alone."""

from __future__ import annotations

from typing import Any

import pytest

from draftmill_api import names
from draftmill_api.jobconfig import config_hash
from tests.api.operator_bed import Bed
from tests.support.played import Player, answer, plan_message, progress_server
from tests.support.played_node import played_node
from tests.support.waiting import until

pytestmark = pytest.mark.api

LIVE = {
    "concurrency": 7,
    "requestsPerMinute": 600,
    "tokensPerMinute": 60000,
    "retries": 9,
    "connectTimeout": "3s",
    "stallTimeout": "90s",
    "outageTimeout": "2h",
    "errorPolicy": {"warnPercent": 1, "pausePercent": 3, "window": 50},
    "onPause": {"freeServersAfter": "1h"},
}


def test_a_live_edit_reaches_the_job_config_and_its_pod_and_replaces_nothing(bed: Bed) -> None:
    run = bed.create("edited")
    with progress_server(answer(1, 100)) as progress:
        _, worker = run.to_running(address=progress.address)
        before = versions(bed, run)
        bed.edit("edited", generation=LIVE)
        until(lambda: LIVE.items() <= run.config()["generation"].items(), 60, run.config_text)
        wanted = config_hash(run.config_text())
        until(lambda: annotation(run.pod("worker"), names.ANNOTATION_CONFIG_HASH) == wanted, 60, wanted)
        progress.answer = answer(2, 100, config_hash=wanted)
        bed.kube.wait("edited", lambda s: s.get("configHash") == wanted, within=60)
        assert run.pod("worker").metadata.uid == worker.metadata.uid
        assert versions(bed, run) == before


def test_endpoints_that_someone_else_runs_change_live(bed: Bed) -> None:
    run = bed.create("moved", endpoints=[{"name": "one", "url": "http://10.0.0.5:8000", "engine": "VLLM"}])
    run.end("plan", message=plan_message(100))
    worker = run.make_ready("worker")
    other = [{"name": "two", "url": "http://10.0.0.6:8000", "engine": "VLLM"}]
    bed.edit("moved", endpoints=other)
    until(lambda: run.config()["endpoints"] == other, 60, "the new endpoint")
    assert run.pod("worker").metadata.uid == worker.metadata.uid


def test_replicas_go_up_and_down_with_one_template_and_the_endpoints_follow(bed: Bed) -> None:
    run = bed.create("scaling")
    first, worker = run.to_running()
    bed.edit("scaling", server={"replicas": 2})
    second = until(lambda: other_pod(run, "server", {first.metadata.uid}), 60, "a second server")
    until(lambda: bed.kube.status("scaling")["servers"]["summary"] == "1/2", 60, "1/2")
    assert endpoints(run) == {first.metadata.name}
    run.make_pod_ready(second)
    until(lambda: endpoints(run) == {first.metadata.name, second.metadata.name}, 60, "both")
    until(lambda: bed.kube.status("scaling")["servers"]["summary"] == "2/2", 60, "2/2")

    bed.edit("scaling", server={"replicas": 1})
    until(lambda: len(bed.kube.pods("scaling", "server")) == 1, 60, "one server")
    (left,) = bed.kube.pods("scaling", "server")
    until(lambda: endpoints(run) == {left.metadata.name}, 60, "the one that is left")
    until(lambda: bed.kube.status("scaling")["servers"]["summary"] == "1/1", 60, "1/1")
    assert len(replica_sets(bed, "scaling")) == 1
    assert run.pod("worker").metadata.uid == worker.metadata.uid
    assert len(run.jobs("worker")) == 1


def test_another_image_restarts_the_servers_and_the_worker_waits_for_them(bed: Bed) -> None:
    run = bed.create("imaged")
    server, worker = run.to_running()
    bed.edit("imaged", server={"image": "lmsysorg/sglang:v0.5.24"})
    new = until(lambda: other_pod(run, "server", {server.metadata.uid}), 60, "another server")
    assert new.spec.containers[0].image == "lmsysorg/sglang:v0.5.24"
    until(lambda: endpoints(run) == set(), 60, "no endpoint while it loads")
    bed.wait_condition("imaged", "ServersReady", "False", "Starting")
    run.make_pod_ready(new)
    until(lambda: endpoints(run) == {new.metadata.name}, 60, "the new one")
    assert run.pod("worker").metadata.uid == worker.metadata.uid


def test_five_edits_in_a_row_end_in_one_template_and_at_most_two_rollouts(bed: Bed) -> None:
    run = bed.create("hasty")
    with played_node(bed.kube, "hasty-node") as node:
        server, _ = run.to_running(node=node)
        node.lets_go = False
        for edit in range(5):
            bed.edit("hasty", server={"image": f"lmsysorg/sglang:v0.6.{edit}"})
        last = "lmsysorg/sglang:v0.6.4"
        until(lambda: image(bed, "hasty") == last, 60, "the last template")
        node.let_go(server)
        new = until(lambda: other_pod(run, "server", {server.metadata.uid}), 60, "another server")
        assert new.spec.containers[0].image == last
        assert len(replica_sets(bed, "hasty")) <= 2


def test_a_new_operator_touches_no_child_of_a_running_run_and_a_resumed_one_keeps_its_images(
    own_bed: Bed,
) -> None:
    run = own_bed.create("upgraded")
    run.to_running()
    before = versions(own_bed, run)
    own_bed.operator.stop()
    own_bed.operator.configure(
        jobImage="registry.example/draftmill-jobs:next",
        podDefaults={
            "server": {"env": [{"name": "NEW", "value": "1"}]},
            "job": {"env": [{"name": "NEW", "value": "1"}]},
        },
    )
    writes = len(own_bed.writes())
    own_bed.operator.start()
    own_bed.make_pass("upgraded")
    assert versions(own_bed, run) == before
    assert not [line for line in own_bed.writes()[writes:] if line["objectRef"]["resource"] == "jobs"]

    own_bed.edit("upgraded", suspend=True)
    own_bed.kube.wait_phase("upgraded", "Suspended", within=60)
    own_bed.edit("upgraded", suspend=False)
    server, worker = run.make_ready("server"), run.make_ready("worker")
    assert worker.spec.containers[0].image.endswith(":test")
    assert not [pod for pod in (server, worker) if "NEW" in {env.name for env in pod.spec.containers[0].env}]


def test_many_passes_over_an_unchanged_run_write_nothing(own_bed: Bed) -> None:
    run = own_bed.create("still", generation={"workers": 3}, server=SERVER | {"replicas": 2})
    run.end("plan", message=plan_message(100))
    for _ in range(2):
        run.make_pod_ready(until(lambda: not_ready(own_bed, "server"), 60, "a server that loads"))
    for _ in range(3):
        run.make_pod_ready(until(lambda: not_ready(own_bed, "worker"), 60, "a worker that starts"))
    own_bed.wait_condition("still", "ServersReady", "True", "AllReady")
    until(lambda: len(endpoints(run)) == 2, 60, "both endpoints")
    wanted = config_hash(run.config_text())
    until(
        lambda: (
            {annotation(pod, names.ANNOTATION_CONFIG_HASH) for pod in own_bed.kube.pods("still", "worker")}
            == {wanted}
        ),
        60,
        "all pods told",
    )
    own_bed.make_pass("still")
    before = len(own_bed.writes())
    for _ in range(20):
        own_bed.make_pass("still")
    assert own_bed.writes()[before:] == []


SERVER = {"engine": "SGLang", "image": "lmsysorg/sglang:v0.5.23"}


def not_ready(bed: Bed, role: str) -> Any:
    pods = bed.kube.pods("still", role)
    return next((pod for pod in pods if pod.status.phase == "Pending"), None)


def versions(bed: Bed, run: Player) -> dict[str, str]:
    """The version of the spec of each child that a change would cost something."""
    (deployment,) = bed.deployments(run.run)
    jobs = [job for role in ("plan", "worker") for job in run.jobs(role)]
    return {each.metadata.uid: str(each.metadata.generation) for each in (*jobs, deployment)} | {
        "template": annotation(deployment.spec.template, names.ANNOTATION_TEMPLATE_HASH)
    }


def annotation(holder: Any, name: str) -> str:
    return str((holder.metadata.annotations or {}).get(name))


def endpoints(run: Player) -> set[str]:
    return {endpoint["name"] for endpoint in run.config()["endpoints"]}


def other_pod(run: Player, role: str, known: set[str]) -> Any:
    return next((pod for pod in run.kube.pods(run.run, role) if pod.metadata.uid not in known), None)


def image(bed: Bed, name: str) -> str:
    (deployment,) = bed.deployments(name)
    return str(deployment.spec.template.spec.containers[0].image)


def replica_sets(bed: Bed, name: str) -> list[Any]:
    selector = f"{names.LABEL_RUN}={name}"
    return list(bed.kube.apps.list_namespaced_replica_set(bed.kube.namespace, label_selector=selector).items)
