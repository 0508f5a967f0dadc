"""Nodes that have no room, are lost, or refuse pods: said in the words of who knows, and worked around."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from draftmill_api import names
from tests.api.operator_bed import Bed
from tests.support.played import plan_message
from tests.support.played_node import excluded_nodes, has_role, played_node
from tests.support.waiting import quiet_for, until

pytestmark = pytest.mark.api

B200, H200 = "NVIDIA-B200", "NVIDIA-H200"
SERVER = {"engine": "SGLang", "image": "lmsysorg/sglang:v0.5.23", "gpus": 8}
SILENT = "Kubelet stopped posting node status."
SICK = ("UnexpectedAdmissionError", "Allocate failed: no healthy devices present for nvidia.com/gpu")


def test_no_room_is_told_by_the_scheduler_and_in_plain_words(bed: Bed) -> None:
    words = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    with (
        played_node(bed.kube, "full", product=B200) as full,
        played_node(bed.kube, "small", gpus=4, product=B200),
        played_node(bed.kube, "other", product=H200),
        other_pod_with_gpus(bed, 2) as other,
    ):
        full.take(other)
        run = bed.create("crowded", server=SERVER | {"gpuProducts": [B200]})
        run.end("plan", message=plan_message(100))
        pod = run.pod("server")
        run.set_status(pod, conditions=[unplaced(words)])
        told = f"{words} (2 nodes match gpuProducts, 0 have 8 free, the most on one is 6)"
        bed.kube.wait("crowded", lambda s: s.get("message") == told, within=30)
        condition = bed.wait_condition("crowded", "ServersReady", "False", "Unschedulable", within=10)
        assert told in condition["message"]
        assert bed.kube.status("crowded")["phase"] == "Starting"
        full.let_go(other)
        full.take(pod)
        run.set_status(pod, conditions=[{"type": "PodScheduled", "status": "True"}])
        run.make_pod_ready(pod)
        bed.wait_condition("crowded", "ServersReady", "True", "AllReady", within=30)
        assert bed.kube.status("crowded")["message"] == ""
        assert bed.events("crowded").count(("Warning", "Unschedulable")) == 1


def test_a_claim_that_is_not_bound_is_told(bed: Bed) -> None:
    words = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."
    run = bed.create("claimless")
    pod = run.pod("plan")
    run.set_status(pod, conditions=[unplaced(words)])
    condition = bed.wait_condition("claimless", "Planned", "False", "Unschedulable", within=30)
    assert condition["message"] == words
    assert bed.kube.status("claimless")["phase"] == "Planning"
    run.set_status(pod, conditions=[{"type": "PodScheduled", "status": "True"}])
    bed.wait_condition("claimless", "Progressing", "True", "Planning", within=30)
    assert bed.kube.status("claimless")["message"] == ""
    run.end("plan", message=plan_message(100))
    bed.wait_condition("claimless", "Planned", "True", "Planned", within=30)
    assert bed.events("claimless").count(("Warning", "Unschedulable")) == 1


def test_a_lost_node_is_told_and_servers_on_it_are_replaced_when_it_is_given_up(bed: Bed) -> None:
    run = bed.create("dark")
    with played_node(bed.kube, "dark-node") as node:
        server, _ = run.to_running(node=node)
        node.fall_silent(SILENT)
        words = f"node dark-node of pod {server.metadata.name} is lost: {SILENT}"
        condition = bed.wait_condition("dark", "ServersReady", "False", "NodeLost", within=30)
        assert words in condition["message"]
        status = bed.kube.wait("dark", lambda s: s["reason"] == "NodeLost", within=30)
        assert SILENT in status["message"]
        assert run.config()["endpoints"] == []
        bed.kube.core.delete_namespaced_pod(server.metadata.name, bed.kube.namespace, grace_period_seconds=1)
        with played_node(bed.kube, "light-node") as other:
            run.make_ready("server", node=other)
            until(lambda: len(run.config()["endpoints"]) == 1, 60, "the new server")
        assert bed.events("dark").count(("Warning", "NodeLost")) == 1


def test_pods_that_a_lost_node_does_not_let_go_are_waited_for_and_that_is_told(bed: Bed) -> None:
    """Nobody knows whether such a worker still writes: a second one beside it must not be."""
    run, sinking = bed.create("limbo"), bed.create("sinking")
    with played_node(bed.kube, "limbo-node") as node:
        (_, worker), (server, _) = run.to_running(node=node), sinking.to_running(node=node)
        node.lets_go = False
        node.set_ready("Unknown", SILENT)
        bed.kube.core.delete_namespaced_pod(worker.metadata.name, bed.kube.namespace, grace_period_seconds=1)
        for pod in node.pods():
            if pod.metadata.labels[names.LABEL_RUN] == "sinking":
                bed.kube.core.delete_namespaced_pod(
                    pod.metadata.name, bed.kube.namespace, grace_period_seconds=1
                )
        bed.edit("sinking", suspend=True)
        words = f"node limbo-node of pod {worker.metadata.name} is lost: {SILENT}"
        status = bed.kube.wait("limbo", lambda s: s["message"] == words, within=30)
        assert status["reason"] == "NodeLost"
        assert [job.metadata.labels[names.LABEL_ATTEMPT] for job in run.jobs("worker")] == ["1"]
        status = bed.kube.wait("sinking", lambda s: SILENT in s["message"], within=30)
        assert status["phase"] == "Suspending"
        assert "to be gone: node limbo-node of pod sinking-sr-" in status["message"]

        node.lets_go = True
        until(lambda: run.pod("worker").metadata.uid != worker.metadata.uid, 60, "the next attempt")
        bed.kube.wait_phase("sinking", "Suspended", within=60)
        assert server.metadata.name not in {pod.metadata.name for pod in node.pods()}


def test_a_node_that_refuses_every_pod_is_left_alone_after_a_few(own_bed: Bed) -> None:
    with played_node(own_bed.kube, "sick") as sick, played_node(own_bed.kube, "well") as well:
        sick.rejects = SICK
        run = own_bed.create("feverish")
        run.end("plan", message=plan_message(100))
        status = own_bed.kube.wait("feverish", lambda s: s.get("excludedNodes"), within=30)
        assert [(node["name"], node["reason"]) for node in status["excludedNodes"]] == [("sick", SICK[0])]
        condition = own_bed.wait_condition("feverish", "ServersReady", "False", "NodeRejects", within=30)
        assert "node sick refused server pods" in condition["message"]
        pod = until(lambda: keeping_away(own_bed, "feverish", "sick"), 60, "a pod that keeps away")
        until(
            lambda: len(own_bed.kube.pods("feverish", "server")) == 1, 60, "the refused ones are cleaned up"
        )
        refused = sick.rejected
        assert refused < 20, "a few, where a loop would make hundreds"
        quiet_for(2)
        assert sick.rejected == refused
        well.take(pod)
        run.make_pod_ready(pod)
        own_bed.wait_condition("feverish", "ServersReady", "True", "AllReady", within=30)
        run.pod("worker")
        events = own_bed.events("feverish")
        assert events.count(("Warning", "NodeExcluded")) == 1
        assert events.count(("Warning", "NodeRejects")) == 1


def test_a_node_that_refuses_a_second_server_is_asked_no_more_and_the_first_works_on(own_bed: Bed) -> None:
    with played_node(own_bed.kube, "well-2") as well, played_node(own_bed.kube, "sick-2") as sick:
        run = own_bed.create("half")
        server, worker = run.to_running(node=well)
        sick.rejects = SICK
        own_bed.edit("half", server={"replicas": 2})
        status = own_bed.kube.wait("half", lambda s: "node sick-2 refused" in servers_ready(s), within=30)
        assert (status["phase"], status["reason"]) == ("Starting", "NodeRejects")
        until(lambda: own_bed.deployments("half")[0].spec.replicas == 1, 60, "no second one is asked for")
        until(lambda: not waiting(own_bed, "half"), 60, "none waits")
        refused = sick.rejected
        assert refused < 20, "a few, where a loop would make hundreds"
        quiet_for(2)
        assert sick.rejected == refused
        ready = [pod for pod in own_bed.kube.pods("half", "server") if pod.status.phase == "Running"]
        assert [pod.metadata.uid for pod in ready] == [server.metadata.uid]
        assert run.pod("worker").metadata.uid == worker.metadata.uid
        assert own_bed.kube.status("half")["excludedNodes"] == [], "that would replace the first one"
        assert own_bed.events("half").count(("Warning", "NodeRejects")) == 1


def test_what_keeps_a_second_server_from_its_work_is_told_while_the_first_works_on(bed: Bed) -> None:
    words = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    crash = {"exitCode": 1, "reason": "Error", "message": "RuntimeError: no kernel image\n"}
    run = bed.create("lame")
    run.to_running()
    bed.edit("lame", server={"replicas": 2})
    (pod,) = until(lambda: waiting(bed, "lame"), 60, "a second one")
    run.set_status(pod, conditions=[unplaced(words)])
    status = told(bed, "lame", "Unschedulable")
    assert words in status["message"]
    assert "1 of 2 servers are ready: 0/1 nodes" in servers_ready(status)
    with played_node(bed.kube, "lame-node") as node:
        node.take(pod)
        run.set_status(pod, conditions=[{"type": "PodScheduled", "status": "True"}])
        run.wait_with(pod, "CrashLoopBackOff", "back-off 10s restarting failed container", last=crash)
        assert (
            told(bed, "lame", "CrashLoopBackOff")["message"] == "exit code 1: RuntimeError: no kernel image"
        )
        run.make_pod_ready(pod)
        bed.wait_condition("lame", "ServersReady", "True", "AllReady", within=30)
        node.fall_silent(SILENT)
        assert SILENT in told(bed, "lame", "NodeLost")["message"]
        node.set_ready("True", "it reports again")
        run.make_pod_ready(pod)
        bed.wait_condition("lame", "ServersReady", "True", "AllReady", within=30)
    assert bed.condition("lame", "Progressing")["status"] == "True"
    for reason in ("Unschedulable", "CrashLoopBackOff", "NodeLost"):
        assert bed.events("lame").count(("Warning", reason)) == 1


def test_a_node_that_refuses_the_plan_is_told_and_left_alone_after_a_few(own_bed: Bed) -> None:
    with played_node(own_bed.kube, "sick-3") as sick:
        sick.refuses, sick.rejects = has_role("plan"), SICK
        own_bed.create("unplanned", backoffLimit=0)
        status = own_bed.kube.wait("unplanned", lambda s: s.get("excludedNodes"), within=60)
        assert excluded(status) == [("plan", "sick-3")]
        run = own_bed.create("shaken")
        condition = own_bed.wait_condition("shaken", "Planned", "False", SICK[0], within=30)
        assert condition["message"] == SICK[1]
        status = own_bed.kube.wait("shaken", lambda s: s.get("excludedNodes"), within=120)
        assert excluded(status) == [("plan", "sick-3")]
        assert sick.rejected == 1 + 3, "one that ends its Job is enough"
        assert excluded_nodes(next_pod(own_bed, "unplanned", "plan").spec) == ["sick-3"]
        pod = next_pod(own_bed, "shaken", "plan")
        assert excluded_nodes(pod.spec) == ["sick-3"]
        run.set_status(pod, conditions=[unplaced("0/1 nodes are available")])
        condition = own_bed.wait_condition("shaken", "Planned", "False", "NodeRejects", within=30)
        assert "node sick-3 refused plan pods" in condition["message"]
        assert "elsewhere: 0/1 nodes are available" in condition["message"]
        run.end_pod(pod, message=plan_message(100))
        assert excluded_nodes(run.pod("server").spec) == []


def test_a_node_that_refuses_generators_is_left_alone_by_them_and_no_failure_is_counted(
    own_bed: Bed,
) -> None:
    with played_node(own_bed.kube, "sick-4") as sick, played_node(own_bed.kube, "well-4") as well:
        run = own_bed.create("handless", backoffLimit=0)
        run.end("plan", message=plan_message(100))
        sick.refuses, sick.rejects = has_role("worker"), SICK
        server = run.make_ready("server", node=well)
        own_bed.wait_condition("handless", "Progressing", "False", SICK[0], within=30)
        status = own_bed.kube.wait("handless", lambda s: s.get("excludedNodes"), within=120)
        assert excluded(status) == [("worker", "sick-4")]
        pod = next_pod(own_bed, "handless", "worker")
        assert excluded_nodes(pod.spec) == ["sick-4"]
        assert sick.rejected == 3
        well.take(pod)
        run.make_pod_ready(pod)
        own_bed.kube.wait("handless", lambda s: s["reason"] == "", within=30)
        (attempts,) = own_bed.kube.status("handless")["attempts"]
        assert (attempts["count"], attempts["withoutProgress"]) == (2, 0)
        until(lambda: len(own_bed.kube.pods("handless", "worker")) == 1, 60, "the refused ones go")
        assert [each.metadata.uid for each in own_bed.kube.pods("handless", "server")] == [
            server.metadata.uid
        ], "no server is replaced for that"
        assert own_bed.events("handless").count(("Warning", "NodeExcluded")) == 1


def test_a_server_that_is_killed_for_its_memory_is_told_with_its_exit_code(bed: Bed) -> None:
    run = bed.create("hungry")
    run.end("plan", message=plan_message(100))
    killed = {"exitCode": 137, "reason": "OOMKilled", "message": "Loading weights: 71 %\n"}
    pod = run.pod("server")
    for _ in range(2):
        run.wait_with(pod, "CrashLoopBackOff", "back-off 10s restarting failed container", last=killed)
        condition = bed.wait_condition("hungry", "ServersReady", "False", "OOMKilled", within=30)
        assert "exit code 137 (OOMKilled): Loading weights: 71 %" in condition["message"]
        run.wait_with(pod, "ContainerCreating", last=killed)
    status = bed.kube.status("hungry")
    assert (status["phase"], status["reason"]) == ("Starting", "OOMKilled")
    run.make_pod_ready(pod)
    bed.wait_condition("hungry", "ServersReady", "True", "AllReady", within=30)
    assert bed.events("hungry").count(("Warning", "OOMKilled")) == 1


def unplaced(words: str) -> dict[str, str]:
    """What the scheduler writes about a pod that it has no node for."""
    return {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}


def told(bed: Bed, name: str, reason: str) -> dict[str, Any]:
    """The status of a run that goes on and says what deserves a look, waited for."""
    status: dict[str, Any] = bed.kube.wait(name, lambda s: s.get("reason") == reason, within=30)
    (progressing,) = [each for each in status["conditions"] if each["type"] == "Progressing"]
    assert progressing["status"] == "True"
    return status


def servers_ready(status: dict[str, Any]) -> str:
    """The message of the condition ServersReady."""
    conditions = status.get("conditions", [])
    return next((str(each["message"]) for each in conditions if each["type"] == "ServersReady"), "")


def waiting(bed: Bed, name: str, role: str = "server") -> list[Any]:
    return [pod for pod in bed.kube.pods(name, role) if pod.status.phase == "Pending"]


def keeping_away(bed: Bed, name: str, node: str) -> Any:
    """The server that waits for another node; one of before may still be on its way to be refused."""
    pods = [pod for pod in waiting(bed, name) if excluded_nodes(pod.spec) == [node]]
    return pods[0] if pods else None


def next_pod(bed: Bed, name: str, role: str) -> Any:
    """The pod that no node has refused, waited for."""
    return until(lambda: next(iter(waiting(bed, name, role)), None), 60, f"another {role} pod of {name}")


def excluded(status: dict[str, Any]) -> list[tuple[str, str]]:
    return [(node["role"], node["name"]) for node in status["excludedNodes"]]


@contextlib.contextmanager
def other_pod_with_gpus(bed: Bed, gpus: int) -> Iterator[Any]:
    """A pod of someone else that asks for GPUs, not placed yet."""
    container = {
        "name": "busy",
        "image": "busy",
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
    }
    body = {"metadata": {"generateName": "busy-"}, "spec": {"containers": [container]}}
    yield bed.kube.core.create_namespaced_pod(bed.kube.namespace, body)
