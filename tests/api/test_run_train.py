"""A DrafterTrain on a real control plane: its ranks are the pods of one Indexed Job, and share their fate."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from draftmill_api import names
from draftmill_api.progress import TerminationMessage
from tests.api.operator_bed import Bed
from tests.api.test_run_extract import complete, condition
from tests.api.test_run_extract import create as create_extract_run
from tests.api.test_run_nodes import unplaced
from tests.support.draftertrains import (
    smallest_drafter_train,
    train_evaluation,
    train_finish_message,
    train_plan_message,
    trainer_message,
    trainer_says,
)
from tests.support.extractruns import (
    extract_finish_message,
    extract_plan_message,
    extract_worker_message,
)
from tests.support.played import Player, progress_server, refusal_message
from tests.support.played_node import played_node
from tests.support.synthruns import smallest_synth_run
from tests.support.waiting import until

pytestmark = pytest.mark.api

H200 = "NVIDIA-H200"


def create(bed: Bed, name: str, **spec: Any) -> Player:
    """A DrafterTrain of two nodes; its store is a folder, unless `from` says otherwise."""
    manifest, own = smallest_drafter_train(name), smallest_synth_run("x")["spec"]
    given = {"from": {"path": "states/k25"}, "target": own["model"], "storage": own["storage"]}
    manifest["spec"] |= (given if "from" not in spec else {}) | {"nodes": 2} | spec
    runs = bed.kube.of("draftertrains")
    runs.create_run(manifest)
    return Player(runs, name)


def rank_of(pod: Any) -> int:
    return int(pod.metadata.annotations[names.ANNOTATION_RANK])


def ranks(run: Player, count: int = 2, attempt: int = 1) -> list[Any]:
    """The pods of an attempt, in the order of their ranks, once all are there."""

    def look() -> list[Any] | None:
        pods = run.kube.pods(run.run, "worker")
        found = [pod for pod in pods if pod.metadata.labels["draftmill.dev/attempt"] == str(attempt)]
        return sorted(found, key=rank_of) if len(found) == count else None

    return until(look, 60, lambda: f"{count} ranks of {run.run}: {run.kube.status(run.run)}")


def to_work(run: Player, address: str | None = None) -> list[Any]:
    """From a new run to ranks that run; the first of them is at the address."""
    run.end("plan", message=train_plan_message(2450))
    pods = ranks(run)
    run.make_pod_ready(pods[0], address)
    run.make_pod_ready(pods[1])
    return pods


def finish_extract_run(run: Player) -> None:
    run.end("plan", message=extract_plan_message(100))
    pod = run.pod("worker")
    run.make_pod_ready(pod)
    run.end_pod(pod, message=extract_worker_message(100, 100))
    run.end("finish", message=extract_finish_message(100))


def test_three_runs_go_from_prompts_to_a_drafter(bed: Bed) -> None:
    run = create(bed, "whole-dt", **{"from": {"extractRun": {"name": "whole-er"}}})
    until(lambda: condition(run, "InputReady") == ("False", "InputNotFound"), 30, "it waits")
    assert bed.kube.children("whole-dt") == []
    earlier = create_extract_run(bed, "whole-er", "whole-sr")
    complete(bed, "whole-sr")
    finish_extract_run(earlier)
    until(lambda: condition(run, "InputReady") == ("True", "Bound"), 60, "it is bound")

    with progress_server(trainer_says(120, 2450)) as progress:
        pods = to_work(run, progress.address)
        status = run.kube.wait("whole-dt", lambda s: s.get("progress", {}).get("step") == 120, within=60)
        assert status["phase"] == "Running"
        assert status["progress"]["acceptanceLength"] == "1.9"
    for pod in pods:
        run.end_pod(pod, message=trainer_message(2450, 2450))
    run.end("finish", message=train_finish_message(2450))
    output = run.kube.wait_phase("whole-dt", "Succeeded", within=60)["output"]
    assert (output["vllm"], output["steps"]) == ("drafters/k25/drafter/vllm", 2450)
    assert output["model"] == {"name": "kimi-k2.5", "fingerprint": "f" * 64}


def test_ranks_are_pods_of_one_job_behind_a_service_that_names_the_first(bed: Bed) -> None:
    run = create(bed, "named-dt")
    pods = to_work(run)
    (job,) = run.jobs("worker")
    assert (job.spec.completion_mode, job.spec.completions, job.spec.parallelism) == ("Indexed", 2, 2)
    service = bed.kube.core.read_namespaced_service("named-dt-dt-worker", bed.kube.namespace)
    assert service.spec.cluster_ip == "None"
    first = pods[0]
    assert (first.spec.hostname, first.spec.subdomain) == (f"{job.metadata.name}-0", service.metadata.name)
    assert service.spec.selector.items() <= first.metadata.labels.items()
    environment = {item.name: item.value for item in first.spec.containers[0].env}
    assert environment["PET_MASTER_ADDR"] == f"{first.spec.hostname}.{first.spec.subdomain}"
    for pod in pods:
        run.end_pod(pod, message=trainer_message(2450, 2450))
    run.pod("finish")
    until(lambda: "named-dt-dt-worker" not in _services(bed), 30, "the service goes with the ranks")


def test_one_dead_rank_is_a_new_attempt_for_all(bed: Bed) -> None:
    run = create(bed, "lost-dt")
    pods = to_work(run)
    run.end_pod(pods[1], 137)
    until(lambda: run.kube.pods("lost-dt", "worker") == [], 60, "the other rank goes too")
    again = ranks(run, attempt=2)
    assert {pod.metadata.name for pod in again}.isdisjoint(pod.metadata.name for pod in pods)
    (attempts,) = run.kube.status("lost-dt")["attempts"]
    assert (attempts["count"], attempts["withoutProgress"]) == (2, 1)
    assert attempts["lastFailure"] == "rank 1: exit code 137"
    for pod in again:
        run.make_pod_ready(pod)
        run.end_pod(pod, message=trainer_message(2450, 2450))
    run.end("finish", message=train_finish_message(2450))
    run.kube.wait_phase("lost-dt", "Succeeded", within=60)


def test_of_a_rank_that_no_node_has_room_for_it_is_said_which_nodes_would_fit(bed: Bed) -> None:
    words = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    with played_node(bed.kube, "small-node", gpus=4, product=H200):
        run = create(bed, "crowded-dt", gpuProducts=[H200])
        run.end("plan", message=train_plan_message(2450))
        pods = ranks(run)
        run.make_pod_ready(pods[0])
        run.set_status(pods[1], conditions=[unplaced(words)])
        told = f"{words} (1 node matches gpuProducts, 0 have 8 free, the most on one is 4)"
        run.kube.wait("crowded-dt", lambda s: s.get("message") == told, within=30)


def test_a_rank_that_refuses_is_final(bed: Bed) -> None:
    run = create(bed, "refused-dt")
    pods = to_work(run)
    run.end_pod(pods[1], 2, refusal_message("NoGPU", "8 GPUs are asked for and CUDA finds 0"))
    status = run.kube.wait("refused-dt", lambda s: s.get("phase") == "Failed", within=60)
    assert (status["reason"], status["message"]) == ("NoGPU", "8 GPUs are asked for and CUDA finds 0")


def test_a_suspended_training_holds_no_rank(bed: Bed) -> None:
    run = create(bed, "stopped-dt")
    to_work(run)
    run.kube.patch_run("stopped-dt", {"spec": {"suspend": True}})
    run.kube.wait_phase("stopped-dt", "Suspended", within=60)
    assert run.jobs("worker") == []
    assert "stopped-dt-dt-worker" not in _services(bed)
    run.kube.patch_run("stopped-dt", {"spec": {"suspend": False}})
    assert len(ranks(run, attempt=2)) == 2


def test_another_number_of_nodes_starts_the_ranks_anew(bed: Bed) -> None:
    run = create(bed, "grown-dt")
    to_work(run)
    run.kube.patch_run("grown-dt", {"spec": {"nodes": 3}})
    again = ranks(run, count=3, attempt=2)
    assert [rank_of(pod) for pod in again] == [0, 1, 2]


def _services(bed: Bed) -> list[str]:
    listed = bed.kube.core.list_namespaced_service(bed.kube.namespace).items
    return [service.metadata.name for service in listed]


EVALUATION: dict[str, Any] = {"server": {"engine": "VLLM", "image": "vllm:1", "gpus": 8}}


def evaluated(bed: Bed, name: str, **spec: Any) -> Player:
    """A DrafterTrain whose training has succeeded, and that is to be evaluated."""
    run = create(bed, name, evaluation=EVALUATION, **spec)
    for pod in to_work(run):
        run.end_pod(pod, message=trainer_message(2450, 2450))
    return run


def says(words: str) -> Callable[[dict[str, Any]], bool]:
    """Whether a status has these words in its message."""
    return lambda status: words in status.get("message", "")


def test_an_evaluation_goes_from_server_to_server_to_the_status(bed: Bed) -> None:
    run = evaluated(bed, "measured-dt")
    made = run.kube.run("measured-dt")
    assert made is not None
    assert made["spec"]["evaluation"]["concurrency"] == [1]
    for role, number in (("evaluate-plain", 1), ("evaluate-draft", 2)):
        pod = run.pod(role)
        (server,) = pod.spec.init_containers
        assert server.restart_policy == "Always"
        assert ("--speculative-config" in server.command) is (role == "evaluate-draft")
        run.kube.wait("measured-dt", says(f"({number} of 2) is about to start"), within=30)
        assert condition(run, "Evaluated") == ("False", "Evaluating")
        run.end_pod(pod, message=TerminationMessage())
    run.end("finish", message=train_finish_message(2450, train_evaluation()))
    status = run.kube.wait_phase("measured-dt", "Succeeded", within=60)
    assert status["evaluation"] == train_evaluation().to_json()
    assert condition(run, "Evaluated") == ("True", "Evaluated")


def test_a_failed_evaluation_leaves_the_drafter_and_is_told(bed: Bed) -> None:
    run = evaluated(bed, "unmeasured-dt")
    run.end("evaluate-plain", 2, refusal_message("EvaluationFailed", "plain at 127.0.0.1: too long"))
    pod = run.pod("finish")
    config = bed.kube.core.read_namespaced_config_map("unmeasured-dt-dt-config", bed.kube.namespace)
    assert "evaluation" not in json.loads(config.data["job.yaml"])
    run.end_pod(pod, message=train_finish_message(2450))
    status = run.kube.wait_phase("unmeasured-dt", "Succeeded", within=60)
    assert status["output"]["vllm"] == "drafters/k25/drafter/vllm"
    assert status["reason"] == "NotEvaluated"
    assert condition(run, "Evaluated") == ("False", "EvaluationFailed")
    assert ("Warning", "NotEvaluated") in bed.events("unmeasured-dt")
