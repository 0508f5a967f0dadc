"""Failures that other operators of batch work and of model servers had, and that must not be ours.

Where each of them is proven, or why it cannot be; modules without a folder are in tests/api:

| failure elsewhere | proven in |
|---|---|
| a finished child that is deleted is made again | test_run_end, test_operator_recovery |
| servers deleted by hand in mid-run stay away | here, test_operator_recovery |
| work that ends while no operator runs is lost | test_operator_recovery |
| a stale cache leads to duplicates | test_operator_faults |
| a foreign object of a child's name is taken | test_run_refused, test_operator_problems |
| a watch is cut, ends or falls silent | test_operator_faults |
| an error on a child's creation wipes the status | test_operator_faults |
| an evicted pod counts as alive | here |
| an image that cannot be pulled shows as Created | test_operator_problems |
| crash loops and OOM kills do not surface | test_operator_problems, test_run_nodes |
| a placement problem is hidden, and waits for ever | test_run_nodes, test_run_suspend |
| a quota or webhook refuses a child in silence | test_operator_problems, test_run_refused |
| a sick node's admission errors fill the namespace | test_run_nodes |
| a preemption spends the backoff limit | here |
| all answers fail and the run succeeds | tests/unit/jobs/test_error_policy, test_run_pause |
| one passing error ends a run | test_operator_recovery |
| a long load is taken for a failure | here |
| a time to live counts on a resync only | test_run_end, tests/unit/operator/test_operator_end |
| edits of image and replicas are ignored | test_run_changes |
| an edit of the model is accepted | test_crd_changes |
| quick edits restart everything several times | test_run_changes |
| an upgrade replaces running pods | test_run_changes |
| rendering differs from pass to pass | test_run_changes, tests/unit/operator/test_operator_rendering |
| suspend races with resume, or is a hot loop | test_run_suspend |
| a resume and a template's change are two writes | cannot be: an attempt is a new Job, never edited |
| two managers fight over replicas | test_operator_economy: they are the run's, and always set |
| a queue's edits of a Job are reverted, its wait is not shown | here |
| scaling down makes finished work again | test_run_workers, tests/unit/jobs/test_generate_live |
| long or dotted names | here, tests/unit/operator/test_operator_names |
| conflicts lead to a storm | test_operator_faults |
| stricter rules of a newer CRD block the status | here |
| a status field is pruned | test_crd_schema; each write of a status is strict |
| writes without end | test_operator_economy, test_run_suspend, test_run_changes |
| a finished run holds servers after a restart | test_run_end |
| a deletion hangs | here, test_operator_economy |
| a terminating namespace is retried for ever | test_operator_faults |
| CRDs go with the release; labels spread; rights lack | tests/chart |
| a drain never finishes | here: evicted pods are made elsewhere; no PodDisruptionBudget is made |
| the operator runs out of memory in a large cluster | tests/unit/operator/test_operator_memory |
| an optional CRD is absent | cannot be: none is used |
| a webhook's certificate expires | cannot be: there is no webhook |
| a Service or Deployment picks other pods | tests/unit/operator/test_operator_rendering: by uid and role |
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

import pytest
from kubernetes import client

from draftmill_api import names
from tests.api.operator_bed import Bed
from tests.support.played import Player, finish_message, plan_message, worker_message
from tests.support.played_node import played_node
from tests.support.synthruns import dry_run, smallest_synth_run
from tests.support.waiting import quiet_for, until

pytestmark = pytest.mark.api

GIVEN = [{"name": "one", "url": "http://10.0.0.5:8000", "engine": "VLLM"}]
LONGEST = 512
"""Of output.path, in the committed CRD."""


def test_servers_deleted_by_hand_in_mid_run_are_made_again_and_the_worker_stays(bed: Bed) -> None:
    run = bed.create("robbed")
    server, worker = run.to_running()
    (deployment,) = bed.deployments("robbed")
    bed.kube.apps.delete_namespaced_deployment(
        deployment.metadata.name, bed.kube.namespace, propagation_policy="Background"
    )
    bed.wait_condition("robbed", "ServersReady", "False", "Starting")
    again = run.make_ready("server")
    assert again.metadata.uid != server.metadata.uid
    bed.wait_condition("robbed", "ServersReady", "True", "AllReady")
    assert run.pod("worker").metadata.uid == worker.metadata.uid


def test_evicted_pods_are_made_again_and_that_is_no_failure(bed: Bed) -> None:
    run = bed.create("evicted", backoffLimit=0)
    with played_node(bed.kube, "drained") as node:
        server, worker = run.to_running(node=node)
        node.lets_go = False
        for pod in (server, worker):
            evict(bed, pod)
        until(lambda: run.config()["endpoints"] == [], 60, "one that is going is no server")
        node.lets_go = True
        new = until(lambda: successor(bed, run, server), 60, "another server")
        run.make_pod_ready(new)
        until(lambda: [each["name"] for each in run.config()["endpoints"]] == [new.metadata.name], 60, "it")
        again = until(lambda: successor(bed, run, worker), 60, "the next attempt")
        assert again.metadata.labels[names.LABEL_ATTEMPT] == "2"
    (attempts,) = bed.kube.status("evicted")["attempts"]
    assert attempts["withoutProgress"] == 0


def test_a_server_that_its_kubelet_evicts_is_no_server(bed: Bed) -> None:
    run = bed.create("pressed")
    server, worker = run.to_running()
    run.set_status(server, phase="Failed", reason="Evicted", message="The node was low on resource: memory.")
    until(lambda: run.config()["endpoints"] == [], 60, "no endpoint")
    again = run.make_ready("server")
    assert again.metadata.uid != server.metadata.uid
    until(lambda: [each["name"] for each in run.config()["endpoints"]] == [again.metadata.name], 60, "it")
    assert run.pod("worker").metadata.uid == worker.metadata.uid


def test_a_preempted_worker_costs_nothing_of_the_backoff_limit(bed: Bed) -> None:
    run = bed.create("preempted", endpoints=GIVEN, backoffLimit=0)
    run.end("plan", message=plan_message(100))
    for _ in range(3):
        pod = run.make_ready("worker")
        disrupted = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "lastTransitionTime": datetime.now(UTC).isoformat(),  # an old one is taken back
        }
        run.set_status(pod, conditions=[disrupted])
        run.end_pod(pod, exit_code=137)
    assert run.pod("worker").metadata.labels[names.LABEL_ATTEMPT] == "4"
    run.end("worker", message=worker_message(100, 100))
    run.end("finish", message=finish_message(100))
    status = bed.kube.wait_phase("preempted", "Succeeded", within=60)
    assert status["attempts"][0]["withoutProgress"] == 0


def test_a_server_that_loads_for_long_is_left_alone(bed: Bed) -> None:
    run = bed.create("loading")
    run.end("plan", message=plan_message(100))
    pod = run.pod("server")
    long_ago = "2026-01-01T00:00:00Z"
    run.set_status(
        pod,
        phase="Running",
        startTime=long_ago,
        conditions=[{"type": "Ready", "status": "False"}],
        containerStatuses=[
            {
                "name": "server",
                "image": "i",
                "imageID": "",
                "restartCount": 0,
                "ready": False,
                "started": False,
                "state": {"running": {"startedAt": long_ago}},
            }
        ],
    )
    bed.wait_condition("loading", "ServersReady", "False", "Starting")
    for _ in range(3):
        bed.make_pass("loading")
    assert run.pod("server").metadata.uid == pod.metadata.uid
    assert bed.kube.status("loading")["phase"] == "Starting"


def test_a_job_that_a_queue_suspends_is_not_set_back(own_bed: Bed) -> None:
    run = own_bed.create("queued")
    run.pod("plan")
    suspend(own_bed, "queued-sr-plan", True)
    until(lambda: not own_bed.kube.pods("queued", "plan"), 60, "its pod goes")
    condition = own_bed.wait_condition("queued", "Planned", "False", "Queued", within=30)
    assert condition["message"].startswith("Job queued-sr-plan is suspended by a queue")
    before = len(own_bed.writes())
    own_bed.make_pass("queued")
    quiet_for(2)
    (job,) = run.jobs("plan")
    assert job.spec.suspend is True
    assert not [line for line in own_bed.writes()[before:] if line["objectRef"]["resource"] == "jobs"]
    status = own_bed.kube.status("queued")
    assert (status["phase"], status["reason"]) == ("Planning", "Queued")
    suspend(own_bed, "queued-sr-plan", False, nodeSelector={"flavor": "spot"})
    plan = run.pod("plan")
    own_bed.kube.wait("queued", lambda s: s["reason"] == "", within=30)
    assert plan.spec.node_selector == {"flavor": "spot"}, "where the queue places it"
    run.end_pod(plan, message=plan_message(100))
    run.pod("server")


def test_a_worker_that_a_queue_holds_is_not_replaced_and_is_no_failure(bed: Bed) -> None:
    run = bed.create("borrowed", backoffLimit=0)
    with played_node(bed.kube, "lent") as node:
        run.to_running(node=node)
        suspend(bed, "borrowed-sr-worker-0-1", True)
        until(lambda: not bed.kube.pods("borrowed", "worker"), 60, "its pod goes")
        bed.wait_condition("borrowed", "Progressing", "False", "Queued", within=30)
        suspend(bed, "borrowed-sr-worker-0-1", False)
        assert run.pod("worker").metadata.labels[names.LABEL_ATTEMPT] == "1"
        bed.kube.wait("borrowed", lambda s: s["reason"] == "", within=30)
    (attempts,) = bed.kube.status("borrowed")["attempts"]
    assert (attempts["count"], attempts["withoutProgress"]) == (1, 0)


def test_the_pending_deadline_counts_while_a_queue_holds_the_run(bed: Bed) -> None:
    run = bed.create("held", pendingDeadline="1h")
    run.pod("plan")
    suspend(bed, "held-sr-plan", True)
    bed.kube.wait("held", lambda s: s.get("reason") == "Queued", within=30)
    began = datetime.fromisoformat(bed.kube.status("held")["clock"]["since"])
    waited = (datetime.now(UTC) - began).total_seconds()
    bed.edit("held", pendingDeadline=f"{int(waited) + 3}s")
    status = bed.kube.wait_phase("held", "Failed", within=60)
    assert status["reason"] == "PendingDeadlineExceeded"
    assert "Job held-sr-plan is suspended by a queue" in status["message"]


@pytest.mark.parametrize("name", ["a", "0.starts-with-a-digit", f"{'long.' * 50}end"], ids=len)
def test_a_run_of_any_name_goes_its_way(bed: Bed, name: str) -> None:
    bed.create(name, endpoints=GIVEN)
    pod = until(lambda: plan_pod_of(bed, name), 60, "the plan's pod")
    assert pod.metadata.annotations[names.ANNOTATION_RUN_NAME] == name
    bed.kube.delete_run(name)
    until(lambda: plan_pod_of(bed, name) is None, 60, "it goes with its run")


def test_a_run_that_is_deleted_while_no_operator_runs_goes_with_its_children(own_bed: Bed) -> None:
    run = own_bed.create("orphaned")
    run.end("plan", message=plan_message(100))
    run.pod("server")
    own_bed.operator.kill()
    own_bed.kube.delete_run("orphaned")
    until(lambda: own_bed.kube.run("orphaned") is None, 60, "the run is gone")
    until(lambda: own_bed.kube.children("orphaned") == [], 60, "its children too")


def test_a_run_that_a_stricter_crd_would_refuse_goes_on(bed: Bed) -> None:
    run = bed.create("lenient")
    run.pod("plan")
    with stricter_crd(bed):
        run.end("plan", message=plan_message(100))
        bed.kube.wait_phase("lenient", "Starting", within=60)
        bed.edit("lenient", suspend=True)
        bed.kube.wait_phase("lenient", "Suspended", within=60)


def evict(bed: Bed, pod: Any) -> None:
    """What a drain asks the API server for."""
    eviction = client.V1Eviction(metadata=client.V1ObjectMeta(name=pod.metadata.name))
    bed.kube.core.create_namespaced_pod_eviction(
        pod.metadata.name, bed.kube.namespace, eviction, _preload_content=False
    )


def successor(bed: Bed, run: Player, pod: Any) -> Any:
    """The pod that has taken the place of one that is gone."""
    role = pod.metadata.labels[names.LABEL_ROLE]
    pods = {each.metadata.uid: each for each in bed.kube.pods(run.run, role)}
    return None if pod.metadata.uid in pods else next(iter(pods.values()), None)


def suspend(bed: Bed, job: str, held: bool, **pod: Any) -> None:
    """What a queue does with a Job; it lets it go to where it has found room.

    Only of a Job that has not started can the place be changed, so a queue takes that back first.
    """
    if pod:
        not_started: Any = {"status": {"startTime": None}}
        bed.kube.batch.patch_namespaced_job_status(job, bed.kube.namespace, not_started)
    change: Any = {"spec": {"suspend": held} | ({"template": {"spec": pod}} if pod else {})}
    bed.kube.batch.patch_namespaced_job(job, bed.kube.namespace, change)


@contextlib.contextmanager
def stricter_crd(bed: Bed) -> Iterator[None]:
    """The CRD as of a newer release, which allows short paths only."""
    crds, name = client.ApiextensionsV1Api(bed.kube.api), "synthruns.draftmill.dev"

    def allow(length: int) -> None:
        where = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/output/properties/path"
        change: Any = [{"op": "replace", "path": f"{where}/maxLength", "value": length}]
        crds.patch_custom_resource_definition(name, change, _content_type="application/json-patch+json")
        until(lambda: is_refused(bed) == (length < LONGEST), 30, "the CRD is in force")

    allow(len("short"))
    try:
        yield
    finally:
        allow(LONGEST)


def is_refused(bed: Bed) -> bool:
    try:
        dry_run(bed.kube.objects, smallest_synth_run("probe"))
    except client.ApiException as error:
        return bool(error.status == HTTPStatus.UNPROCESSABLE_ENTITY)
    return False


def plan_pod_of(bed: Bed, name: str) -> Any:
    pods = bed.kube.core.list_namespaced_pod(
        bed.kube.namespace, label_selector=f"{names.LABEL_ROLE}=plan"
    ).items
    named = (pod for pod in pods if pod.metadata.annotations[names.ANNOTATION_RUN_NAME] == name)
    return next(named, None)
