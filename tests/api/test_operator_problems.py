"""What keeps a run from going on is in its conditions within seconds, in the words of who found it."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes import client

from tests.api.operator_bed import Bed
from tests.support.played import plan_message, refusal_message
from tests.support.waiting import until

pytestmark = pytest.mark.api

GIVEN = [{"name": "one", "url": "http://10.0.0.5:8000", "engine": "VLLM"}]


def quota(bed: Bed, **hard: str) -> None:
    bed.kube.core.create_namespaced_resource_quota(
        bed.kube.namespace,
        client.V1ResourceQuota(
            metadata=client.V1ObjectMeta(name="tight"), spec=client.V1ResourceQuotaSpec(hard=hard)
        ),
    )
    until(
        lambda: bed.kube.core.read_namespaced_resource_quota("tight", bed.kube.namespace).status.hard,
        10,
        "the quota is in force",
    )


def lift_quota(bed: Bed) -> None:
    bed.kube.core.delete_namespaced_resource_quota("tight", bed.kube.namespace)


def test_an_image_that_cannot_be_pulled(bed: Bed) -> None:
    run = bed.create("image")
    run.end("plan", message=plan_message(100))
    pod, words = run.pod("server"), 'failed to resolve reference "docker.io/lmsysorg/sglang:v0": not found'
    run.wait_with(pod, "ErrImagePull", words)
    condition = bed.wait_condition("image", "ServersReady", "False", "ImagePullBackOff", within=30)
    assert words in condition["message"]
    writes = status_writes(bed, "image")
    for _ in range(2):
        run.wait_with(pod, "ImagePullBackOff", 'Back-off pulling image "lmsysorg/sglang:v0"')
        bed.make_pass("image")
        run.wait_with(pod, "ErrImagePull", words)
        bed.make_pass("image")
    status = bed.kube.status("image")
    assert (status["reason"], status["message"]) == ("ImagePullBackOff", words)
    assert status_writes(bed, "image") == writes, "whatever turn the kubelet is at, nothing is new"
    run.make_pod_ready(pod)
    bed.wait_condition("image", "ServersReady", "True", "AllReady", within=30)
    assert bed.kube.status("image")["message"] == ""
    assert bed.events("image").count(("Warning", "ImagePullBackOff")) == 1


def test_a_pod_that_cannot_be_scheduled(bed: Bed) -> None:
    words = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    run = bed.create("scheduled")
    run.end("plan", message=plan_message(100))
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
    run.set_status(run.pod("server"), conditions=[unschedulable])
    condition = bed.wait_condition("scheduled", "ServersReady", "False", "Unschedulable", within=30)
    assert words in condition["message"]
    assert bed.kube.status("scheduled")["message"] == f"{words} (no node has GPUs)"


def test_a_server_that_crashes_again_and_again(bed: Bed) -> None:
    run = bed.create("crashing")
    run.end("plan", message=plan_message(100))
    pod = run.pod("server")
    run.wait_with(
        pod,
        "CrashLoopBackOff",
        "back-off 10s restarting failed container",
        last={
            "exitCode": 1,
            "reason": "Error",
            "message": "Loading weights\nRuntimeError: CUDA out of memory\n",
        },
    )
    bed.wait_condition("crashing", "ServersReady", "False", "CrashLoopBackOff", within=30)
    assert bed.kube.status("crashing")["message"] == "exit code 1: RuntimeError: CUDA out of memory"
    run.make_pod_ready(pod)
    bed.wait_condition("crashing", "ServersReady", "True", "AllReady", within=30)
    assert bed.kube.status("crashing")["message"] == ""
    assert bed.events("crashing").count(("Warning", "CrashLoopBackOff")) == 1


def test_a_plan_that_refuses(bed: Bed) -> None:
    run = bed.create("refused")
    run.end("plan", exit_code=2, message=refusal_message("ModelNotFound", "/models/kimi has no config.json"))
    status = bed.kube.wait("refused", lambda s: s.get("phase") == "Failed", within=30)
    assert (status["reason"], status["message"]) == ("ModelNotFound", "/models/kimi has no config.json")
    assert bed.condition("refused", "Failed")["status"] == "True"
    assert len(run.jobs("plan")) == 1, "its log stays"


def test_pods_that_a_quota_refuses(own_bed: Bed) -> None:
    quota(own_bed, pods="0")
    run = own_bed.create("quota")
    condition = own_bed.wait_condition("quota", "Planned", "False", "FailedCreate", within=30)
    assert "exceeded quota: tight" in condition["message"]
    lift_quota(own_bed)
    run.pod("plan", within=40)
    own_bed.wait_condition("quota", "Progressing", "True", "Planning", within=30)
    assert own_bed.kube.status("quota")["message"] == ""
    assert own_bed.events("quota").count(("Warning", "FailedCreate")) == 1


def test_servers_that_a_quota_refuses(own_bed: Bed) -> None:
    run = own_bed.create("serverquota")
    run.pod("plan")
    quota(own_bed, **{"requests.nvidia.com/gpu": "4"})
    run.end("plan", message=plan_message(100))
    condition = own_bed.wait_condition("serverquota", "ServersReady", "False", "FailedCreate", within=30)
    assert "exceeded quota: tight" in condition["message"]
    lift_quota(own_bed)
    run.make_ready("server")
    own_bed.wait_condition("serverquota", "ServersReady", "True", "AllReady", within=30)
    assert own_bed.kube.status("serverquota")["message"] == ""
    assert own_bed.events("serverquota").count(("Warning", "FailedCreate")) == 1


def test_jobs_that_a_quota_refuses(own_bed: Bed) -> None:
    quota(own_bed, **{"count/jobs.batch": "0"})
    run = own_bed.create("jobquota")
    condition = own_bed.wait_condition("jobquota", "Progressing", "False", "ChildCreateFailed", within=30)
    assert "exceeded quota: tight" in condition["message"]
    assert own_bed.kube.status("jobquota")["observedGeneration"] == 0
    lift_quota(own_bed)
    run.pod("plan", within=40)
    own_bed.wait_condition("jobquota", "Progressing", "True", "Planning", within=30)
    assert own_bed.kube.status("jobquota")["message"] == ""
    assert own_bed.events("jobquota").count(("Warning", "ChildCreateFailed")) == 1


def test_an_object_of_a_childs_name_that_is_not_the_runs_is_left_alone(bed: Bed) -> None:
    metadata = client.V1ObjectMeta(name="taken-sr-config")
    bed.kube.core.create_namespaced_config_map(
        bed.kube.namespace, client.V1ConfigMap(metadata=metadata, data={"mine": "yes"})
    )
    run = bed.create("taken", endpoints=GIVEN)
    condition = bed.wait_condition("taken", "Progressing", "False", "NameConflict", within=30)
    assert "taken-sr-config" in condition["message"]
    found = bed.kube.core.read_namespaced_config_map("taken-sr-config", bed.kube.namespace)
    assert found.data == {"mine": "yes"}
    assert run.jobs("plan") == []
    bed.kube.core.delete_namespaced_config_map("taken-sr-config", bed.kube.namespace)
    run.pod("plan", within=60)


def test_a_host_path_outside_the_prefixes(own_bed: Bed) -> None:
    storage = {
        "models": {"hostPath": {"path": "/mnt/models"}},
        "data": {"persistentVolumeClaim": {"claimName": "data"}},
    }
    run = own_bed.create("hostpath", storage=storage)
    condition = own_bed.wait_condition("hostpath", "Progressing", "False", "HostPathNotAllowed", within=5)
    assert "'/mnt/models'" in condition["message"]
    assert own_bed.kube.status("hostpath")["phase"] == "Pending"
    assert run.jobs("plan") == []

    own_bed.operator.stop()
    own_bed.operator.configure(hostPathPrefixes=["/mnt"])
    own_bed.operator.start()
    run.pod("plan")
    own_bed.wait_condition("hostpath", "Progressing", "True", "Planning", within=30)
    assert own_bed.kube.status("hostpath")["message"] == ""
    assert own_bed.events("hostpath").count(("Warning", "HostPathNotAllowed")) == 1


def test_a_volume_that_cannot_be_mounted(bed: Bed) -> None:
    run = bed.create("mount")
    pod = run.pod("plan")
    run.wait_with(pod, "ContainerCreating")
    warn(bed, pod, "FailedMount", 'MountVolume.SetUp failed for volume "data": no such file or directory')
    condition = bed.wait_condition("mount", "Planned", "False", "FailedMount", within=30)
    assert "no such file or directory" in condition["message"]
    run.end("plan", message=plan_message(100))
    bed.wait_condition("mount", "Planned", "True", "Planned", within=30)
    assert bed.kube.status("mount")["message"] == ""
    assert bed.events("mount").count(("Warning", "FailedMount")) == 1


def test_each_problem_is_told_once_as_an_event(own_bed: Bed) -> None:
    run = own_bed.create("told")
    run.end("plan", exit_code=2, message=refusal_message("PromptsNotFound", "no /data/p.jsonl"))
    own_bed.kube.wait("told", lambda s: s.get("phase") == "Failed", within=30)
    until(lambda: ("Warning", "PromptsNotFound") in own_bed.events("told"), 5, "the event")
    own_bed.operator.kill()
    own_bed.operator.start()
    assert own_bed.events("told").count(("Warning", "PromptsNotFound")) == 1


def status_writes(bed: Bed, name: str) -> int:
    """How often the operator has written a run's status."""
    runs = (
        {"resource": "synthruns", "name": name}.items() <= each["objectRef"].items() for each in bed.writes()
    )
    return sum(runs)


def warn(bed: Bed, pod: Any, reason: str, message: str) -> None:
    bed.kube.core.create_namespaced_event(
        bed.kube.namespace,
        {
            "metadata": {"generateName": "played."},
            "involvedObject": {
                "kind": "Pod",
                "name": pod.metadata.name,
                "uid": pod.metadata.uid,
                "namespace": bed.kube.namespace,
            },
            "type": "Warning",
            "reason": reason,
            "message": message,
        },
    )
