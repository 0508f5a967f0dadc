"""The watch of pods lags behind the one of Jobs: what a pod said last is asked for, not taken for lost."""

from __future__ import annotations

import pytest

from draftmill_api.exitcode import ExitCode
from draftmill_operator.observe.store import Kind
from draftmill_operator.run import Role
from tests.unit.operator.world.controllers import has_ended, role
from tests.unit.operator.world.world import World


def until_a_pod_runs(world: World, wanted: Role) -> str:
    """Let all go well until a pod of this role is at work; its name."""
    for _ in range(60):
        for pod in world.server.all(Kind.POD):
            if role(pod) == wanted and pod.get("status", {}).get("phase") == "Running":
                world.settle()
                return str(pod["metadata"]["name"])
        world.go_on()
    raise AssertionError(f"no {wanted} pod: {world.status}")


def everything_but_pods_is_seen(world: World) -> None:
    world.controllers.step()
    for kind in Kind:
        if kind is not Kind.POD:
            world.process.deliver(kind, 1000)
    world.operate()


@pytest.mark.parametrize("step", [Role.PLAN, Role.FINISH])
@pytest.mark.parametrize("knew_the_pod", [False, True])
def test_a_step_that_ended_is_not_done_again(step: Role, knew_the_pod: bool) -> None:
    world = World()
    until_a_pod_runs(world, step)
    if not knew_the_pod:
        for raw in world.process.store.all(Kind.POD):
            world.process.store.remove(Kind.POD, raw)
    while not all(has_ended(pod) for pod in world.server.all(Kind.POD) if role(pod) == step):
        for pod in world.server.all(Kind.POD):
            if role(pod) == step:
                world.kubelet.step(pod)
    everything_but_pods_is_seen(world)
    assert [write for write in world.client.writes if write.startswith(f"DELETE Job k25-10k-sr-{step}")] == []
    assert world.status["plan"]["rows"] > 0
    if step is Role.FINISH:
        assert world.phase == "Succeeded"


def test_an_interrupted_worker_spends_no_attempt() -> None:
    world = World(backoffLimit=0)
    name = until_a_pod_runs(world, Role.WORKER)
    for raw in world.process.store.all(Kind.POD):
        if role(raw) == Role.WORKER:
            world.process.store.remove(Kind.POD, raw)
    world.kubelet.end(world.server.objects[Kind.POD][name], ExitCode.INTERRUPTED, "SIGTERM")
    job = next(raw for raw in world.server.all(Kind.JOB) if role(raw) == Role.WORKER)
    world.server.change(
        Kind.JOB,
        job["metadata"]["name"],
        status={"failed": 1, "conditions": [{"type": "Failed", "status": "True", "reason": "Backoff"}]},
    )
    everything_but_pods_is_seen(world)
    assert not world.is_over
    assert world.status["attempts"][0]["withoutProgress"] == 0


def test_a_pod_that_is_gone_is_asked_for_once() -> None:
    world = World()
    name = until_a_pod_runs(world, Role.WORKER)
    job = next(raw for raw in world.server.all(Kind.JOB) if role(raw) == Role.WORKER)
    world.server.remove(Kind.POD, name)
    world.process.deliver_all()
    world.server.change(Kind.JOB, job["metadata"]["name"], status={"failed": 1})
    before = world.client.lists
    everything_but_pods_is_seen(world)
    assert world.client.lists == before + 1
    world.make_pass()
    assert world.client.lists == before + 1


def test_a_worker_that_succeeded_keeps_its_job_though_its_pod_still_looks_alive() -> None:
    world = World()
    name = until_a_pod_runs(world, Role.WORKER)
    while not has_ended(world.server.objects[Kind.POD][name]):
        world.kubelet.step(world.server.objects[Kind.POD][name])
    job = next(raw for raw in world.server.all(Kind.JOB) if role(raw) == Role.WORKER)["metadata"]["name"]
    said = {"type": "SuccessCriteriaMet", "status": "True", "reason": "CompletionsReached"}
    world.server.change(Kind.JOB, job, status={"conditions": [said]})  # it counts the pod later
    everything_but_pods_is_seen(world)
    assert [write for write in world.client.writes if write.startswith(f"DELETE Job {job}")] == []
