"""A run that takes another one's output: it waits, is bound once, and goes on by itself."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from draftmill_operator.observe.store import Kind, run_uid
from draftmill_operator.run import Role
from tests.support.extractruns import smallest_extract_run
from tests.support.played import refusal_message
from tests.support.synthruns import smallest_synth_run
from tests.unit.operator.world.controllers import role
from tests.unit.operator.world.pipeline import EXTRACT, SYNTH, Pipeline


def extract_run(**spec: Any) -> dict[str, Any]:
    manifest = smallest_extract_run(EXTRACT.name)
    manifest["spec"] |= spec
    return manifest


def pipeline(**spec: Any) -> Pipeline:
    """A SynthRun and the ExtractRun that waits for it, applied together and looked at once."""
    world = Pipeline()
    world.apply(extract_run(**spec))
    world.apply(smallest_synth_run(SYNTH.name))
    world.settle()
    return world


def bound() -> Pipeline:
    """The SynthRun is Complete, and the ExtractRun has its input."""
    world = pipeline()
    world.until(lambda: "input" in world.status(EXTRACT))
    return world


def at_work() -> Pipeline:
    """The extractor works."""
    world = pipeline()
    world.until_phase(EXTRACT, "Running")
    return world


def test_two_runs_applied_together_end_with_a_store() -> None:
    world = pipeline()
    world.until_phase(EXTRACT, "Succeeded")
    output = world.status(EXTRACT)["output"]
    assert (output["rows"], output["layerIds"], output["dtype"]) == (12, [2, 15, 27, 30], "BFloat16")
    assert output["manifest"] == "states/k25/manifest.json"
    assert output["volume"] == {"persistentVolumeClaim": {"claimName": "data"}}
    assert output["model"] == {"name": "kimi-k2.5", "fingerprint": "f" * 64}


def test_a_run_whose_input_is_not_ready_waits_and_holds_nothing() -> None:
    world = pipeline()
    assert world.status(EXTRACT)["phase"] == "WaitingForInput"
    assert world.condition(EXTRACT, "InputReady") == ("False", "InputNotReady")
    assert world.children(EXTRACT) == []
    assert "startTime" not in world.status(EXTRACT)


def test_a_run_whose_input_does_not_exist_says_so_and_goes_on_once_it_does() -> None:
    world = Pipeline()
    world.apply(extract_run())
    world.settle()
    assert world.condition(EXTRACT, "InputReady") == ("False", "InputNotFound")
    world.apply(smallest_synth_run(SYNTH.name))
    world.until_phase(EXTRACT, "Succeeded")


def test_a_waiting_run_is_looked_at_for_its_inputs_sake_alone() -> None:
    world = Pipeline()
    world.apply(extract_run())
    world.settle()
    before = world.passes[EXTRACT]
    world.time += timedelta(days=30)
    world.settle()
    assert world.passes[EXTRACT] == before


def test_a_failed_input_is_waited_for_until_it_is_run_again() -> None:
    world = pipeline()
    world.kubelet.end(world.until_runs(SYNTH, Role.PLAN), 2, refusal_message("ModelNotFound", "no"))
    world.until_phase(SYNTH, "Failed")
    world.settle()
    assert world.status(EXTRACT)["phase"] == "WaitingForInput"
    assert world.condition(EXTRACT, "InputReady") == ("False", "InputFailed")
    assert "ModelNotFound: no" in world.status(EXTRACT)["message"]
    world.delete(SYNTH)
    world.apply(smallest_synth_run(SYNTH.name))
    world.until_phase(EXTRACT, "Succeeded")


def test_a_bound_run_does_not_need_its_input_any_more() -> None:
    world = bound()
    before = world.status(EXTRACT)["input"]
    world.delete(SYNTH)
    world.until_phase(EXTRACT, "Succeeded")
    assert world.status(EXTRACT)["input"] == before


def test_a_bound_run_is_not_bound_to_a_re_created_input() -> None:
    world = bound()
    before = world.status(EXTRACT)["input"]
    world.delete(SYNTH)
    world.apply(smallest_synth_run(SYNTH.name))
    world.until_phase(SYNTH, "Succeeded")
    assert world.status(EXTRACT)["input"] == before


def test_the_input_can_be_changed_while_it_is_waited_for() -> None:
    world = pipeline()
    world.edit(EXTRACT, **{"from": {"synthRun": {"name": "other"}}})
    world.settle()
    assert world.condition(EXTRACT, "InputReady") == ("False", "InputNotFound")
    world.apply(smallest_synth_run("other"))
    world.until(lambda: "input" in world.status(EXTRACT))
    assert world.status(EXTRACT)["input"]["name"] == "other"


def test_waiting_for_longer_than_the_pending_deadline_is_the_end() -> None:
    world = Pipeline()
    world.apply(extract_run(pendingDeadline="1h"))
    world.settle()
    world.time += timedelta(hours=1)
    world.settle()
    status = world.status(EXTRACT)
    assert (status["phase"], status["reason"]) == ("Failed", "PendingDeadlineExceeded")
    assert "waiting for SynthRun k25-10k" in status["message"]


def test_a_suspended_run_does_not_take_its_input() -> None:
    world = pipeline(suspend=True)
    world.until_phase(SYNTH, "Succeeded")
    world.settle()
    assert world.status(EXTRACT)["phase"] == "Suspended"
    assert "input" not in world.status(EXTRACT)
    world.edit(EXTRACT, suspend=False)
    world.until_phase(EXTRACT, "Succeeded")


def test_a_restarted_operator_goes_on_where_the_old_one_was() -> None:
    for phase in ("WaitingForInput", "Planning", "Starting", "Running", "Finishing"):
        world = pipeline()
        world.until_phase(EXTRACT, phase)
        world.start_operator()
        world.until_phase(EXTRACT, "Succeeded")


def test_a_given_path_is_ready_at_once() -> None:
    world = Pipeline()
    own = {key: smallest_synth_run("x")["spec"][key] for key in ("model", "storage")}
    world.apply(extract_run(**{"from": {"path": "prepared"}}, **own))
    world.until_phase(EXTRACT, "Succeeded")
    assert world.condition(EXTRACT, "InputReady") == ("True", "GivenPath")


def test_the_jobs_are_told_the_input_the_plan_and_the_server_beside_them() -> None:
    world = at_work()
    (raw,) = [raw for raw in world.children(EXTRACT) if "job.yaml" in raw.get("data", {})]
    config = json.loads(raw["data"]["job.yaml"])
    assert config["records"] == {
        "path": "/data/prepared",
        "manifest": "/data/prepared/manifest.json",
        "manifestSHA256": "a" * 64,
        "modelFingerprint": "f" * 64,
    }
    assert config["model"]["path"] == "/models/kimi-k2.5-int4"
    assert config["plan"]["layerIds"] == [2, 15, 27, 30]
    assert config["endpoints"] == [{"name": "beside", "url": "http://127.0.0.1:8000", "engine": "VLLM"}]
    assert config["staging"] == "/staging"


def test_an_extractor_that_is_killed_is_started_again_beside_its_server() -> None:
    world = at_work()
    while len(world.kubelet.states) < 12:
        done = len(world.kubelet.states)
        world.kubelet.end(world.until_runs(EXTRACT, Role.WORKER), 137)
        world.until(lambda before=done: len(world.kubelet.states) > before)  # type: ignore[misc]
    world.until_phase(EXTRACT, "Succeeded")
    (attempts,) = world.status(EXTRACT)["attempts"]
    assert (attempts["count"], attempts["withoutProgress"]) == (1, 0)
    assert attempts["restarts"] > 5


def test_an_extractor_that_gets_nowhere_ends_the_run() -> None:
    world = at_work()
    for _ in range(8):
        world.kubelet.end(world.until_runs(EXTRACT, Role.WORKER), 1, "boom")
        world.settle()
    status = world.status(EXTRACT)
    assert (status["phase"], status["reason"]) == ("Failed", "BackoffLimitExceeded")
    assert "boom" in status["message"]


def test_an_extractor_that_refuses_ends_the_run_though_the_kubelet_starts_it_again() -> None:
    world = at_work()
    world.kubelet.end(
        world.until_runs(EXTRACT, Role.WORKER), 2, refusal_message("PreflightFailed", "ids differ")
    )
    world.settle()
    status = world.status(EXTRACT)
    assert (status["phase"], status["reason"]) == ("Failed", "PreflightFailed")


def test_a_node_that_refuses_extractors_is_left_alone_and_costs_no_failure() -> None:
    world = pipeline(backoffLimit=0)

    def is_done_though_a_node_is_sick() -> bool:
        for raw in world.children(EXTRACT):
            if role(raw) == Role.WORKER and raw.get("spec", {}).get("nodeName") == "node-1":
                world.kubelet.reject(raw)
        return bool(world.status(EXTRACT).get("phase") == "Succeeded")

    world.until(is_done_though_a_node_is_sick)
    status = world.status(EXTRACT)
    assert [node["name"] for node in status["excludedNodes"]] == ["node-1"]
    assert [attempts["count"] for attempts in status["attempts"]] == [2]


def test_runs_of_one_name_do_not_share_a_child() -> None:
    world = at_work()
    names = [(raw["kind"], raw["metadata"]["name"]) for raw in world.children(EXTRACT) if "kind" in raw]
    assert all(name.startswith("k25-10k-er-") for _, name in names)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_suspended_extraction_holds_nothing_and_goes_on_from_the_states_on_disk(workers: int) -> None:
    world = pipeline(workers=workers)
    world.until(lambda: len(world.kubelet.states) >= 3)
    world.edit(EXTRACT, suspend=True)
    world.until_phase(EXTRACT, "Suspended")
    before = len(world.kubelet.states)
    assert 3 <= before < 12
    assert Role.WORKER not in {role(raw) for raw in world.children(EXTRACT)}
    for _ in range(5):
        world.go_on()
    assert (world.status(EXTRACT)["phase"], len(world.kubelet.states)) == ("Suspended", before)

    world.edit(EXTRACT, suspend=False)
    world.until_phase(EXTRACT, "Succeeded")

    attempts = world.status(EXTRACT)["attempts"]
    assert [(each["count"], each["withoutProgress"]) for each in attempts] == [(2, 0)] * workers


def test_an_extraction_that_is_suspended_while_it_is_planned_is_planned_when_it_goes_on() -> None:
    world = pipeline()
    world.until_runs(EXTRACT, Role.PLAN)
    world.edit(EXTRACT, suspend=True)
    world.until_phase(EXTRACT, "Suspended")
    assert "plan" not in world.status(EXTRACT)

    world.edit(EXTRACT, suspend=False)
    world.until_phase(EXTRACT, "Succeeded")


def test_another_restart_word_starts_the_extractor_anew_and_it_is_told_the_word() -> None:
    world = at_work()
    (old,) = world.running(EXTRACT, Role.WORKER)
    world.edit(EXTRACT, restart="again")

    def others() -> set[str]:
        return {raw["metadata"]["name"] for raw in world.running(EXTRACT, Role.WORKER)} - {
            old["metadata"]["name"]
        }

    world.until(lambda: bool(others()))
    (raw,) = [raw for raw in world.children(EXTRACT) if "job.yaml" in raw.get("data", {})]
    assert json.loads(raw["data"]["job.yaml"])["run"]["restart"] == "again"
    world.until_phase(EXTRACT, "Succeeded")
    assert world.status(EXTRACT)["restartServed"] == "again"
    assert [each["count"] for each in world.status(EXTRACT)["attempts"]] == [2]


def test_an_extraction_that_was_active_for_too_long_fails_and_lets_go_of_its_gpus() -> None:
    world = pipeline(activeDeadline="10m")
    world.until_phase(EXTRACT, "Running")
    world.time += timedelta(minutes=10)
    world.settle()
    status = world.status(EXTRACT)
    assert (status["phase"], status["reason"]) == ("Failed", "DeadlineExceeded")
    world.until(lambda: not world.running(EXTRACT, Role.WORKER))
    for _ in range(5):
        world.go_on()
    assert world.running(EXTRACT, Role.WORKER) == []


def test_an_extraction_is_removed_so_long_after_its_end_and_not_before() -> None:
    world = pipeline(ttlAfterFinished="1h")
    world.until_phase(EXTRACT, "Succeeded")

    def is_there() -> bool:
        return EXTRACT.name in world.server.objects[Kind.EXTRACT_RUN]

    world.time += timedelta(minutes=58)
    world.settle()
    assert is_there()
    world.time += timedelta(minutes=2)
    world.settle()
    assert not is_there()


@pytest.mark.parametrize("workers", [1, 3])
def test_servers_are_ready_when_every_worker_has_its_own(workers: int) -> None:
    world = pipeline(workers=workers)
    world.until_phase(EXTRACT, "Running")
    assert world.status(EXTRACT)["servers"]["summary"] == f"{workers}/{workers}"
    assert world.condition(EXTRACT, "ServersReady") == ("True", "AllReady")
    world.until_phase(EXTRACT, "Succeeded")
    assert world.condition(EXTRACT, "ServersReady") == ("False", "Released")


@pytest.mark.parametrize(
    "change", [{"server": {"engine": "VLLM", "image": "server:2"}}, {"workers": 2}], ids=["server", "workers"]
)
def test_new_workers_start_when_the_pods_of_the_old_ones_are_gone(change: dict[str, Any]) -> None:
    world = at_work()
    (old,) = world.running(EXTRACT, Role.WORKER)
    world.edit(EXTRACT, **change)
    world.settle()
    world.controllers.step()
    world.settle()
    world.controllers.step()
    uid = world.uid(EXTRACT)
    pods = [raw for raw in world.server.all(Kind.POD) if run_uid(raw) == uid and role(raw) == Role.WORKER]
    assert [raw["metadata"]["name"] for raw in pods] == [old["metadata"]["name"]]
    world.until_phase(EXTRACT, "Succeeded")
