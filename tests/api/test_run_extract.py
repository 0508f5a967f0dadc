"""An ExtractRun on a real control plane: it waits for its input; its workers have servers beside them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from draftmill_api.progress import Progress, WorkerState
from tests.api.operator_bed import Bed
from tests.support.extractruns import (
    extract_finish_message,
    extract_plan_message,
    extract_progress,
    extract_worker_message,
    smallest_extract_run,
)
from tests.support.played import (
    Player,
    answer,
    finish_message,
    progress_server,
    refusal_message,
    worker_message,
)
from tests.support.played_node import excluded_nodes, played_node
from tests.support.waiting import until

pytestmark = pytest.mark.api


def create(bed: Bed, name: str, earlier: str, **spec: Any) -> Player:
    """An ExtractRun that takes the output of an earlier run."""
    manifest = smallest_extract_run(name)
    manifest["spec"] |= {"from": {"synthRun": {"name": earlier}}} | spec
    runs = bed.kube.of("extractruns")
    runs.create_run(manifest)
    return Player(runs, name)


def complete(bed: Bed, name: str) -> None:
    """A SynthRun is created and comes to its end."""
    run = bed.create(name)
    _, worker = run.to_running()
    with progress_server(answer(100, 100)):
        run.end_pod(worker, message=worker_message(100, 100))
    run.end("finish", message=finish_message(100))
    bed.kube.wait_phase(name, "Succeeded", within=60)


def condition(run: Player, kind: str) -> tuple[str, str]:
    found = [item for item in run.kube.status(run.run).get("conditions", []) if item["type"] == kind]
    return (found[0]["status"], found[0]["reason"]) if found else ("", "")


def to_worker(run: Player, **server: Any) -> Any:
    """From a bound run to a worker's pod whose server is so."""
    run.end("plan", message=extract_plan_message(100))
    pod = run.pod("worker")
    run.set_status(pod, initContainerStatuses=[server_status(pod, **server)])
    return pod


def server_status(pod: Any, **fields: Any) -> dict[str, Any]:
    server = pod.spec.init_containers[-1]
    base = {"name": server.name, "image": server.image, "imageID": "", "restartCount": 0}
    return base | {"ready": True, "started": True, "state": {"running": {}}} | fields


def test_a_run_waits_for_its_input_and_goes_from_plan_to_store(bed: Bed) -> None:
    run = create(bed, "chained-er", "chained-sr")
    until(lambda: condition(run, "InputReady") == ("False", "InputNotFound"), 30, "it waits")
    assert bed.kube.children("chained-er") == []
    complete(bed, "chained-sr")
    until(lambda: condition(run, "InputReady") == ("True", "Bound"), 30, "it is bound")
    bed.kube.delete_run("chained-sr")

    pod = to_worker(run)
    until(lambda: condition(run, "ServersReady") == ("True", "AllReady"), 30, "its server is ready")
    said = Progress(
        state=WorkerState.RUNNING,
        config_hash="c",
        extraction=extract_progress(40, 100).model_copy(update={"tokens_per_second": 900, "eta": "1m"}),
    )
    with progress_server(said) as progress:
        run.make_pod_ready(pod, progress.address)
        status = run.kube.wait("chained-er", lambda s: s.get("progress", {}).get("rows") == 40, within=60)
        assert (status["phase"], status["progress"]["tokensPerSecond"]) == ("Running", 900)
    run.end_pod(pod, message=extract_worker_message(100, 100))
    run.end("finish", message=extract_finish_message(100))
    output = run.kube.wait_phase("chained-er", "Succeeded", within=60)["output"]
    assert (output["rows"], output["layerIds"], output["path"]) == (100, [2, 15, 27, 30], "states/k25")


def test_a_server_that_crashes_beside_its_worker_is_told_as_one_that_stands_apart(bed: Bed) -> None:
    complete(bed, "crash-sr")
    run = create(bed, "crash-er", "crash-sr")
    last = {"exitCode": 1, "reason": "Error", "message": "no kernel image"}
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
    crashed = {"lastState": {"terminated": last}, "restartCount": 3, "state": waiting}
    to_worker(run, ready=False, started=False, **crashed)
    until(lambda: condition(run, "ServersReady") == ("False", "CrashLoopBackOff"), 30, "it is told")
    assert "no kernel image" in run.kube.status("crash-er")["message"]


def test_an_extractor_that_refuses_is_final_though_the_kubelet_starts_it_again(bed: Bed) -> None:
    complete(bed, "refused-sr")
    run = create(bed, "refused-er", "refused-sr")
    pod = to_worker(run)
    said = json.dumps(refusal_message("PreflightFailed", "ids differ").to_json())
    last = {"exitCode": 2, "reason": "Error", "message": said}
    run.wait_with(pod, "CrashLoopBackOff", last=last)
    status = run.kube.wait("refused-er", lambda s: s.get("phase") == "Failed", within=60)
    assert (status["reason"], status["message"]) == ("PreflightFailed", "ids differ")


def test_a_node_that_refuses_extractors_is_left_alone_and_no_failure_is_counted(own_bed: Bed) -> None:
    with played_node(own_bed.kube, "sick") as sick, played_node(own_bed.kube, "well") as well:
        complete(own_bed, "feverish-sr")
        sick.rejects = "UnexpectedAdmissionError", "no healthy devices present for nvidia.com/gpu"
        run = create(own_bed, "feverish-er", "feverish-sr", backoffLimit=0)
        run.end("plan", message=extract_plan_message(100))
        status = run.kube.wait("feverish-er", lambda s: s.get("excludedNodes"), within=120)
        assert [node["name"] for node in status["excludedNodes"]] == ["sick"]
        assert sick.rejected == 3
        pod = until(lambda: next(iter(waiting_workers(run)), None), 60, "a pod that keeps away")
        assert excluded_nodes(pod.spec) == ["sick"]
        well.take(pod)
        run.set_status(pod, initContainerStatuses=[server_status(pod)])
        until(lambda: condition(run, "ServersReady") == ("True", "AllReady"), 30, "its server is ready")
        (attempts,) = run.kube.status("feverish-er")["attempts"]
        assert (attempts["count"], attempts["withoutProgress"]) == (2, 0)


def waiting_workers(run: Player) -> list[Any]:
    return [pod for pod in run.kube.pods(run.run, "worker") if pod.status.phase == "Pending"]


def test_a_store_that_is_larger_than_its_claim_is_refused_though_the_file_system_has_room(bed: Bed) -> None:
    claim(bed, "small", "1Gi")
    complete(bed, "small-sr")
    storage = {name: {"persistentVolumeClaim": {"claimName": name}} for name in ("models", "data")}
    storage["data"]["persistentVolumeClaim"]["claimName"] = "small"
    run = create(bed, "small-er", "small-sr", storage=storage)
    run.end("plan", message=extract_plan_message(1000))
    status = run.kube.wait("small-er", lambda s: s.get("phase") == "Failed", within=60)
    assert status["reason"] == "InsufficientStorage"
    assert "the store needs 4.61 GB (4.61 GB for states, 5 MB for" in status["message"]
    assert "claim small has 1.07 GB" in status["message"]


def claim(bed: Bed, name: str, size: str) -> None:
    """A claim that is bound to a volume of its own."""
    core, namespace = bed.kube.core, bed.kube.namespace
    volume = f"{namespace}-{name}"
    common = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    ours = {"capacity": {"storage": size}, "hostPath": {"path": f"/srv/{volume}"}}
    wanted = {"resources": {"requests": {"storage": size}}, "volumeName": volume}
    core.create_persistent_volume({"metadata": {"name": volume}, "spec": common | ours})
    core.create_namespaced_persistent_volume_claim(
        namespace, {"metadata": {"name": name}, "spec": common | wanted}
    )

    def is_bound() -> bool:
        found = core.read_namespaced_persistent_volume_claim(name, namespace)
        return bool(found.status.phase == "Bound")

    until(is_bound, 60, f"claim {name} is bound")


def test_a_failed_input_is_waited_for(bed: Bed) -> None:
    earlier = bed.create("failed-sr")
    earlier.end("plan", 2, refusal_message("ModelNotFound", "no such model"))
    bed.kube.wait("failed-sr", lambda s: s.get("phase") == "Failed", within=60)
    run = create(bed, "failed-er", "failed-sr")
    until(lambda: condition(run, "InputReady") == ("False", "InputFailed"), 30, "it waits")
    bed.kube.delete_run("failed-sr")
    until(lambda: condition(run, "InputReady") == ("False", "InputNotFound"), 30, "it hears of the deletion")
    complete(bed, "failed-sr")
    until(lambda: condition(run, "InputReady") == ("True", "Bound"), 30, "it goes on")
