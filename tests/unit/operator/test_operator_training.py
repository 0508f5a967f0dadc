"""A trainer of several ranks: they are one attempt, and what befalls one of them befalls all."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from draftmill_operator.observe.pods import rank_of
from draftmill_operator.observe.store import Kind, Object, controller_uid, run_uid
from draftmill_operator.run import Role
from tests.support.draftertrains import smallest_drafter_train
from tests.support.extractruns import smallest_extract_run
from tests.support.played import refusal_message
from tests.support.synthruns import smallest_synth_run
from tests.unit.operator.world.controllers import role
from tests.unit.operator.world.pipeline import EXTRACT, SYNTH, TRAIN, Pipeline
from tests.unit.operator.world.ranks import STEPS

NODES = 3


def drafter_train(**spec: Any) -> dict[str, Any]:
    manifest = smallest_drafter_train(TRAIN.name)
    manifest["spec"] |= {"nodes": NODES} | spec
    return manifest


def training(**spec: Any) -> Pipeline:
    """A DrafterTrain whose store is a folder that is there."""
    world, own = Pipeline(), smallest_synth_run("x")["spec"]
    given = {"from": {"path": "states/k25"}, "target": own["model"], "storage": own["storage"]}
    world.apply(drafter_train(**given, **spec))
    world.settle()
    return world


def at_work(**spec: Any) -> Pipeline:
    """The ranks have taken a step."""
    world = training(**spec)
    world.until(lambda: world.kubelet.training.step > 0)
    return world


def ranks(world: Pipeline) -> list[Object]:
    """The trainer's pods, whatever their state, in the order of their ranks."""
    uid = world.uid(TRAIN)
    pods = [raw for raw in world.server.all(Kind.POD) if run_uid(raw) == uid and role(raw) == Role.WORKER]
    return sorted(pods, key=rank_of)


def services(world: Pipeline) -> list[str]:
    uid = world.uid(TRAIN)
    return [raw["metadata"]["name"] for raw in world.server.all(Kind.SERVICE) if run_uid(raw) == uid]


def attempts(world: Pipeline) -> dict[str, Any]:
    (record,) = world.status(TRAIN)["attempts"]
    return dict(record)


def test_three_runs_applied_together_end_with_a_drafter() -> None:
    world = Pipeline()
    for manifest in (drafter_train(), smallest_extract_run(EXTRACT.name), smallest_synth_run(SYNTH.name)):
        world.apply(manifest)
    world.settle()
    assert world.condition(TRAIN, "InputReady") == ("False", "InputNotReady")
    assert world.children(TRAIN) == []
    world.until_phase(TRAIN, "Succeeded")
    status = world.status(TRAIN)
    assert status["input"]["kind"] == "ExtractRun"
    assert status["output"] == {
        "volume": {"persistentVolumeClaim": {"claimName": "data"}},
        "path": "drafters/k25",
        "manifest": "drafters/k25/manifest.json",
        "manifestSHA256": "d" * 64,
        "model": {"name": "kimi-k2.5", "fingerprint": "f" * 64},
        "vllm": "drafters/k25/drafter/vllm",
        "sglang": "drafters/k25/drafter/sglang",
        "steps": STEPS,
        "acceptanceLength": "2.87",
        "teacherAgreement": "",
        "draftVocabularySize": 32000,
        "layerIds": [2, 15, 27],
    }


def test_target_and_volumes_come_down_from_the_first_run_to_the_last() -> None:
    world = Pipeline()
    for manifest in (smallest_synth_run(SYNTH.name), smallest_extract_run(EXTRACT.name), drafter_train()):
        world.apply(manifest)
    world.until_phase(TRAIN, "Running")
    (raw,) = [raw for raw in world.children(TRAIN) if "job.yaml" in raw.get("data", {})]
    config = json.loads(raw["data"]["job.yaml"])
    assert config["target"]["path"] == "/models/kimi-k2.5-int4"
    assert config["store"] == {
        "path": "/data/states/k25",
        "manifest": "/data/states/k25/manifest.json",
        "manifestSHA256": "c" * 64,
        "modelFingerprint": "f" * 64,
    }
    assert config["plan"]["steps"] == STEPS


def test_all_ranks_are_pods_of_one_job_and_only_the_first_is_told_of() -> None:
    world = at_work()
    assert len({controller_uid(pod) for pod in ranks(world)}) == 1
    assert [rank_of(pod) for pod in ranks(world)] == [0, 1, 2]
    world.until(lambda: world.status(TRAIN).get("progress", {}).get("step", 0) > 0)
    assert world.status(TRAIN)["phase"] == "Running"
    assert attempts(world)["count"] == 1
    assert world.condition(TRAIN, "ServersReady") == ("True", "NotNeeded")


def test_ranks_find_each_other_by_a_service_that_is_there_as_long_as_they_are() -> None:
    world = training()
    assert services(world) == []
    world.until(lambda: bool(ranks(world)))
    assert services(world) == ["k25-10k-dt-worker"]
    world.until_phase(TRAIN, "Succeeded")
    world.go_on()
    assert services(world) == []


def killed(world: Pipeline) -> None:
    world.kubelet.end(ranks(world)[1], 137)


def evicted(world: Pipeline) -> None:
    world.kubelet.evict(ranks(world)[1])


def vanished(world: Pipeline) -> None:
    world.server.remove(Kind.POD, ranks(world)[1]["metadata"]["name"])


@pytest.mark.parametrize(("lose", "counts"), [(killed, 1), (evicted, 0), (vanished, 1)])
def test_one_lost_rank_is_a_new_attempt_for_all(lose: Callable[[Pipeline], None], counts: int) -> None:
    world = at_work()
    before = {pod["metadata"]["uid"] for pod in ranks(world)}
    lose(world)
    seen = list[set[str]]()
    world.until(lambda: _watched(world, seen) and attempts(world)["count"] == 2)
    assert attempts(world)["withoutProgress"] == counts
    world.until_phase(TRAIN, "Succeeded")
    assert all(pods <= before or not pods & before for pods in seen)
    assert attempts(world)["count"] == 2


def _watched(world: Pipeline, seen: list[set[str]]) -> bool:
    seen.append({pod["metadata"]["uid"] for pod in ranks(world)})
    return True


def test_a_rank_that_refuses_ends_the_run() -> None:
    world = at_work()
    world.kubelet.end(ranks(world)[2], 2, refusal_message("NoGPU", "8 GPUs are asked for and CUDA finds 7"))
    world.until_phase(TRAIN, "Failed")
    assert world.status(TRAIN)["reason"] == "NoGPU"
    world.go_on()
    world.go_on()
    assert world.running(TRAIN, Role.WORKER) == []


def test_checkpoints_are_progress_and_steps_that_are_lost_again_are_none() -> None:
    world = at_work(backoffLimit=1)
    world.kubelet.end(ranks(world)[1], 1, "boom")
    world.settle()
    world.until(lambda: attempts(world)["count"] == 2 and world.kubelet.training.step == 1)
    world.until(lambda: len(world.running(TRAIN, Role.WORKER)) == NODES)
    world.kubelet.end(ranks(world)[1], 1, "boom")
    world.settle()
    world.until_phase(TRAIN, "Failed")
    status = world.status(TRAIN)
    assert status["reason"] == "BackoffLimitExceeded"
    assert "rank 1: exit code 1: boom" in status["message"]


def test_a_suspended_training_holds_nothing_and_goes_on_from_its_checkpoint() -> None:
    world = training()
    world.until(lambda: world.kubelet.training.step == 3)
    world.edit(TRAIN, suspend=True)
    world.until_phase(TRAIN, "Suspended")
    assert (ranks(world), services(world)) == ([], [])
    world.edit(TRAIN, suspend=False)
    world.until_phase(TRAIN, "Running")
    assert world.kubelet.training.step >= 3
    world.until_phase(TRAIN, "Succeeded")


@pytest.mark.parametrize("change", [{"nodes": 2}, {"restart": "again"}, {"checkpoint": {"everySteps": 9}}])
def test_another_number_of_ranks_starts_when_the_old_ones_are_gone(change: dict[str, Any]) -> None:
    world = at_work()
    before = {pod["metadata"]["uid"] for pod in ranks(world)}
    world.edit(TRAIN, **change)
    seen = list[set[str]]()
    world.until(lambda: _watched(world, seen) and attempts(world)["count"] == 2 and bool(ranks(world)))
    assert all(pods <= before or not pods & before for pods in seen)
    world.until(lambda: len(ranks(world)) == change.get("nodes", NODES))
    world.until_phase(TRAIN, "Succeeded")


def test_a_restarted_operator_goes_on_where_the_old_one_was() -> None:
    for phase in ("Planning", "Starting", "Running", "Finishing"):
        world = training()
        world.until_phase(TRAIN, phase)
        world.start_operator()
        world.until_phase(TRAIN, "Succeeded")
        assert attempts(world)["count"] == 1


def test_a_live_field_changes_without_a_new_attempt() -> None:
    world = at_work()
    world.edit(TRAIN, backoffLimit=9, activeDeadline="9h")
    world.until_phase(TRAIN, "Succeeded")
    assert attempts(world)["count"] == 1


def test_a_node_that_refuses_ranks_is_left_alone_and_costs_no_failure() -> None:
    world = training(backoffLimit=0)

    def is_done_though_a_node_is_sick() -> bool:
        for raw in ranks(world):
            if raw["spec"].get("nodeName") == "node-1":
                world.kubelet.reject(raw)
        return bool(world.status(TRAIN).get("phase") == "Succeeded")

    world.until(is_done_though_a_node_is_sick)
    assert [(node["role"], node["name"]) for node in world.status(TRAIN)["excludedNodes"]] == [
        ("worker", "node-1")
    ]
    assert (attempts(world)["count"], attempts(world)["withoutProgress"]) == (2, 0)
