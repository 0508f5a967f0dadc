"""How little the operator writes, and that it leaves alone what it should."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from tests.api.operator_bed import Bed
from tests.support.played import (
    answer,
    finish_message,
    plan_message,
    progress_server,
    worker_message,
)
from tests.support.waiting import quiet_for, until

pytestmark = pytest.mark.api


def whole_run(bed: Bed, name: str) -> None:
    run = bed.create(name)
    run.to_running()
    run.end("worker", message=worker_message(100, 100))
    run.end("finish", message=finish_message(100))
    bed.kube.wait_phase(name, "Succeeded", within=30)
    until(lambda: not bed.deployments(name), 30, "no servers")


def test_a_whole_run_costs_a_handful_of_writes_and_idling_none(own_bed: Bed) -> None:
    whole_run(own_bed, "cheap")
    lease = _lease(own_bed)
    until(lambda: _lease(own_bed) != lease, 30, "the lease is renewed")
    writes = Counter(
        (line["verb"], line["objectRef"]["resource"], line["objectRef"].get("subresource", ""))
        for line in own_bed.writes()
    )
    assert writes["patch", "jobs", ""] == 3
    assert writes["patch", "deployments", ""] == 1
    assert writes["patch", "configmaps", ""] <= 4
    assert writes["patch", "synthruns", "status"] <= 10
    assert not [key for key in writes if key[1:] == ("synthruns", "")], "neither spec nor metadata"

    before = len(own_bed.writes())
    quiet_for(12)
    assert len(own_bed.writes()) == before


def test_nothing_of_the_run_but_its_status_is_touched(bed: Bed) -> None:
    run = bed.create("pristine")
    before = _pristine(bed, "pristine")
    run.end("plan", message=plan_message(100))
    bed.kube.wait_phase("pristine", "Starting", within=30)
    assert _pristine(bed, "pristine") == before


def test_progress_alone_is_written_at_most_every_five_seconds(own_bed: Bed) -> None:
    run = own_bed.create("chatty")
    run.end("plan", message=plan_message(1000))
    run.make_ready("server")
    with progress_server(answer(1, 1000)) as progress:
        run.make_ready("worker", progress.address)
        own_bed.kube.wait_phase("chatty", "Running", within=30)
        before = _status_writes(own_bed)
        for second in range(11):
            progress.answer = answer(2 + second * 10, 1000)
            quiet_for(1)
        assert 1 <= _status_writes(own_bed) - before <= 3


def test_rates_without_counts_are_not_written(own_bed: Bed) -> None:
    run = own_bed.create("rates")
    run.end("plan", message=plan_message(1000))
    run.make_ready("server")
    with progress_server(answer(1, 1000)) as progress:
        run.make_ready("worker", progress.address)
        own_bed.kube.wait("rates", lambda s: s.get("progress", {}).get("done") == 1, within=30)
        until(lambda: own_bed.condition("rates", "ServersReady").get("status") == "True", 5, "calm")
        before = _status_writes(own_bed)
        other = answer(1, 1000)
        progress.answer = other.model_copy(
            update={"progress": other.progress.model_copy(update={"requests_per_second": "9.9"})}
        )
        quiet_for(7)
        assert _status_writes(own_bed) == before


def test_a_new_operator_with_other_defaults_leaves_a_running_run_as_it_is(own_bed: Bed) -> None:
    run = own_bed.create("frozen")
    run.to_running()
    (deployment,) = own_bed.deployments("frozen")
    own_bed.operator.stop()
    own_bed.operator.configure(
        jobImage="registry.example/draftmill-jobs:next",
        podDefaults={"server": {"env": [{"name": "NEW", "value": "1"}]}, "job": {}},
    )
    own_bed.operator.start()
    run.end("worker", message=worker_message(100, 100))
    finish = run.pod("finish")
    assert finish.spec.containers[0].image.endswith(":test")
    run.end("finish", message=finish_message(100))
    status = own_bed.kube.wait_phase("frozen", "Succeeded", within=30)
    assert status["attempts"][0]["count"] == 1
    assert deployment.metadata.generation == 1

    other = own_bed.create("thawed")
    assert other.pod("plan").spec.containers[0].image.endswith(":next")


def test_replicas_follow_the_spec_and_not_a_hand(bed: Bed) -> None:
    run = bed.create("scaled")
    run.to_running()
    (deployment,) = bed.deployments("scaled")
    name = deployment.metadata.name
    bed.kube.apps.patch_namespaced_deployment(name, bed.kube.namespace, {"spec": {"replicas": 3}})
    until(lambda: _replicas(bed, name) == 1, 30, "one replica again")
    bed.kube.patch_run("scaled", {"spec": {"server": {"replicas": 2}}})
    until(lambda: _replicas(bed, name) == 2, 30, "two replicas")
    until(lambda: bed.kube.status("scaled")["servers"]["summary"] == "1/2", 30, "1/2")
    assert bed.condition("scaled", "ServersReady")["reason"] == "PartlyReady"


def test_a_deleted_run_takes_all_its_children_with_it(bed: Bed) -> None:
    run = bed.create("goner")
    run.to_running()
    bed.kube.delete_run("goner")
    until(lambda: bed.kube.run("goner") is None, 30, "the run is gone")
    until(lambda: bed.kube.children("goner") == [], 30, lambda: str(bed.kube.children("goner")))


def test_a_recreated_run_of_the_same_name_starts_anew(bed: Bed) -> None:
    run = bed.create("again")
    run.end("plan", message=plan_message(7))
    bed.kube.wait("again", lambda s: s.get("plan"), within=30)
    bed.kube.delete_run("again")
    until(lambda: bed.kube.run("again") is None, 30, "the run is gone")
    run = bed.create("again")
    bed.kube.wait_phase("again", "Planning", within=30)
    run.end("plan", message=plan_message(8))
    status = bed.kube.wait("again", lambda s: s.get("plan"), within=30)
    assert status["plan"]["rows"] == 8


def _pristine(bed: Bed, name: str) -> Any:
    run = bed.kube.run(name)
    assert run is not None
    metadata = {k: v for k, v in run["metadata"].items() if k not in {"managedFields", "resourceVersion"}}
    return json.dumps([run["spec"], metadata], sort_keys=True)


def _status_writes(bed: Bed) -> int:
    return sum(line["objectRef"].get("subresource") == "status" for line in bed.writes())


def _replicas(bed: Bed, name: str) -> int:
    deployment = bed.kube.apps.read_namespaced_deployment(name, bed.kube.namespace)
    return int(deployment.spec.replicas)


def _lease(bed: Bed) -> Any:
    from kubernetes import client

    leases = client.CoordinationV1Api(bed.kube.api)
    spec = leases.read_namespaced_lease("draftmill-operator", bed.kube.namespace).spec
    return spec.renew_time if spec is not None else None
