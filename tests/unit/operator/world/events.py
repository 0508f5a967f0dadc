"""What can happen to a run: each event by a name, with a number that picks which thing it happens to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import aiohttp

from draftmill_api.exitcode import ExitCode
from draftmill_operator.kube.errors import ApiError
from draftmill_operator.observe.store import Kind, Object
from draftmill_operator.run import EVALUATIONS, Role
from tests.unit.operator.world.api import Fault, Killed
from tests.unit.operator.world.controllers import role
from tests.unit.operator.world.edits import (
    administrator_decides,
    checkpoints_change,
    deadlines_change,
    keeping_changes,
    nodes_change,
    pod_overrides_change,
    policy_changes,
    replicas_change,
    restart_is_asked,
    resume_is_asked,
    run_is_recreated,
    server_changes,
    suspend_is_switched,
    suspend_is_toggled,
    suspended_before_it_was_recorded,
    ttl_changes,
    workers_change,
)
from tests.unit.operator.world.kubelet import is_running
from tests.unit.operator.world.world import World

Event = Callable[[World, int], None]
CODES: Final = (ExitCode.FAILED, ExitCode.INTERRUPTED, 137, ExitCode.FAILED, 137, ExitCode.DONE)
SPANS: Final = (0.5, 5.0, 60.0, 700.0, 1000.0)


def going_on(world: World, pick: int) -> None:
    """Some steps in which nothing goes wrong."""
    for _ in range(pick % 8 + 1):
        world.go_on()


def much_happens_unseen(world: World, pick: int) -> None:
    """Controllers and nodes get on, and the operator hears of it later."""
    for _ in range(pick % 10 + 1):
        world.controllers.step()
        for pod in world.server.all(Kind.POD):
            world.kubelet.step(pod)
        world.checks.writers()


def controllers_step(world: World, pick: int) -> None:
    """The controllers react, and nobody else."""
    world.controllers.step()


def pod_steps(world: World, pick: int) -> None:
    """One pod gets further."""
    _with_pod(world, pick, world.kubelet.step)


def watch_delivers(world: World, pick: int) -> None:
    """One watch brings a few events; the others lag behind it."""
    world.process.deliver(tuple(Kind)[pick % len(Kind)], pick // len(Kind) % 4 + 1)


def watches_deliver(world: World, pick: int) -> None:
    """The operator's cache is brought up to date."""
    world.process.deliver_all()


def watch_replays(world: World, pick: int) -> None:
    """A watch brings an old event again; some time later the comparison with the server tells."""
    world.process.replay(tuple(Kind)[pick % len(Kind)], pick // len(Kind))


def cache_is_compared(world: World, pick: int) -> None:
    """What is gone from the server is forgotten."""
    world.process.compare()


def operator_looks(world: World, pick: int) -> None:
    """The operator asks the workers and makes the passes it is called for."""
    world.process.poll()
    world.operate()


def operator_passes(world: World, pick: int) -> None:
    """A pass that nobody called for."""
    world.make_pass()


def operator_restarts(world: World, pick: int) -> None:
    """Everything that it knew is forgotten."""
    world.start_operator()


def operator_is_killed(world: World, pick: int) -> None:
    """The process ends before or after its next writes."""
    world.client.fault = Fault(pick // 2 % 4, None, lands=pick % 2 == 0, error=Killed())


def status_write_fails(world: World, pick: int) -> None:
    """The next status is not written, or is and nobody hears of it."""
    world.client.fault = Fault(0, world.subject.kind, lands=pick % 2 == 0, error=_broken(pick))


def write_fails(world: World, pick: int) -> None:
    """Any of the next writes is not made, or is and nobody hears of it."""
    world.client.fault = Fault(pick // 4 % 4, None, lands=pick % 2 == 0, error=_broken(pick))


def child_is_refused(world: World, pick: int) -> None:
    """A quota or a webhook refuses the next child."""
    refusal = ApiError(403, "Forbidden", "exceeded quota")
    kind = (Kind.JOB, Kind.DEPLOYMENT, Kind.CONFIG_MAP)[pick % 3]
    world.client.fault = Fault(0, kind, lands=False, error=refusal)


def quota_is_switched(world: World, pick: int) -> None:
    """Server pods are refused by a quota from now on, or no longer."""
    world.controllers.refusal = "exceeded quota: gpus" if pick % 2 else ""


def container_ends(world: World, pick: int) -> None:
    """With a code after which it may be tried again, or as if its last words were lost."""
    code = CODES[pick // 8 % len(CODES)]

    def end(pod: Object) -> None:
        if code != ExitCode.DONE or role(pod) in {Role.PLAN, Role.FINISH}:
            world.kubelet.end(pod, code, "last line")

    _with_pod(world, pick, end)


def container_refuses(world: World, pick: int) -> None:
    """Code 2."""
    _with_pod(world, pick, world.kubelet.refuse)


def node_rejects(world: World, pick: int) -> None:
    """A pod that was placed is refused by its node."""
    _with_pod(world, pick, world.kubelet.reject)


def node_rejects_servers(world: World, pick: int) -> None:
    """A sick node refuses server pods one after the other, as fast as they are made."""
    for _ in range(3):
        for pod in world.server.all(Kind.POD):
            if role(pod) == Role.SERVER and "nodeName" not in pod["spec"]:
                world.kubelet.step(pod)
        for pod in world.server.all(Kind.POD):
            if role(pod) == Role.SERVER:
                world.kubelet.reject(pod)
        world.controllers.step()


def image_cannot_be_pulled(world: World, pick: int) -> None:
    """A pod that was placed waits for its image."""
    _with_pod(world, pick, world.kubelet.pull_in_vain)


def pod_is_evicted(world: World, pick: int) -> None:
    """For a drain, or for a pod of a higher priority."""
    _with_pod(world, pick, world.kubelet.evict)


def node_falls_silent(world: World, pick: int) -> None:
    """Or is heard of again."""
    _with_pod(world, pick, world.kubelet.fall_silent)


def policy_trips(world: World, pick: int) -> None:
    """Every worker at work pauses."""
    for pod in world.server.all(Kind.POD):
        world.kubelet.trip(pod, at_the_end=pick % 3 == 0)


def pause_is_long(world: World, pick: int) -> None:
    """A run that pauses now loses its servers."""
    policy_trips(world, pick)
    world.settle()
    world.pass_time(1000)
    world.settle()


def pod_is_deleted(world: World, pick: int) -> None:
    """By hand."""
    _with_pod(world, pick, lambda pod: world.server.mark_deleted(Kind.POD, pod["metadata"]["name"], 60))


def job_is_deleted(world: World, pick: int) -> None:
    """By hand: it is gone at once, and its pods follow."""
    _delete(world, Kind.JOB, pick)


def servers_are_deleted(world: World, pick: int) -> None:
    """By hand, the Deployment or the Service."""
    _delete(world, (Kind.DEPLOYMENT, Kind.SERVICE)[pick % 2], 0)


def config_is_deleted(world: World, pick: int) -> None:
    """By hand: the job config or the frozen defaults."""
    _delete(world, Kind.CONFIG_MAP, pick)


def time_passes(world: World, pick: int) -> None:
    """And nothing else."""
    world.pass_time(SPANS[pick % len(SPANS)])


def evaluation_begins(world: World, pick: int) -> None:
    """All goes well until a server is asked, unless the run stands still."""
    for _ in range(pick % 60):
        if _evaluating(world):
            return
        world.go_on()


def server_crashes(world: World, pick: int) -> None:
    """The server beside an evaluation ends again and again before it answers."""
    for pod in _evaluating(world):
        world.kubelet.crash_server(pod, times=pick % 20)
        world.settle()


def nothing_changes(world: World, pick: int) -> None:
    """Two passes on one state."""
    world.look_twice()


COMMON: Final[tuple[Event, ...]] = (
    going_on,
    controllers_step,
    pod_steps,
    watch_delivers,
    watches_deliver,
    operator_looks,
)
"""Most of what happens."""
RARE: Final[tuple[Event, ...]] = (
    administrator_decides,
    cache_is_compared,
    child_is_refused,
    config_is_deleted,
    container_ends,
    container_refuses,
    deadlines_change,
    image_cannot_be_pulled,
    job_is_deleted,
    keeping_changes,
    node_falls_silent,
    node_rejects,
    node_rejects_servers,
    much_happens_unseen,
    much_happens_unseen,
    nothing_changes,
    operator_is_killed,
    operator_passes,
    operator_restarts,
    pause_is_long,
    pod_is_deleted,
    pod_is_evicted,
    pod_overrides_change,
    policy_changes,
    policy_trips,
    quota_is_switched,
    replicas_change,
    restart_is_asked,
    resume_is_asked,
    run_is_recreated,
    server_changes,
    servers_are_deleted,
    status_write_fails,
    suspend_is_switched,
    suspend_is_toggled,
    suspended_before_it_was_recorded,
    time_passes,
    ttl_changes,
    watch_replays,
    workers_change,
    write_fails,
)
ALL: Final[Sequence[Event]] = (*COMMON * 5, *RARE)
"""Every event, as often as it is to be picked."""
_OF_SERVERS_APART: Final = {
    keeping_changes,
    node_rejects_servers,
    pause_is_long,
    pod_overrides_change,
    policy_changes,
    policy_trips,
    quota_is_switched,
    replicas_change,
    resume_is_asked,
    server_changes,
    workers_change,
}
"""What cannot happen to a training."""
OF_TRAININGS: Final[Sequence[Event]] = (
    *COMMON * 5,
    *(event for event in RARE if event not in _OF_SERVERS_APART),
    nodes_change,
    checkpoints_change,
    evaluation_begins,
    evaluation_begins,
    server_crashes,
    server_crashes,
)
"""Every event of a DrafterTrain, as often as it is to be picked."""

_GIVEN: Final = [{"name": "one", "url": "http://10.0.0.5:8000", "engine": "VLLM"}]
RUNS: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"generation": {"workers": 3}, "backoffLimit": 1},
    {"server": None, "endpoints": _GIVEN, "generation": {"workers": 2}},
    {"suspend": True, "backoffLimit": 0},
    {"activeDeadline": "20m", "pendingDeadline": "5m", "ttlAfterFinished": "10m"},
    {
        "storage": {
            "models": {"hostPath": {"path": "/srv/models"}},
            "data": {"persistentVolumeClaim": {"claimName": "data"}},
        }
    },
)
"""Specs that a run begins with."""
TRAININGS: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"nodes": 3, "backoffLimit": 1},
    {"nodes": 1, "evaluation": None},
    {"suspend": True, "backoffLimit": 0},
    {"activeDeadline": "20m", "pendingDeadline": "5m", "ttlAfterFinished": "10m"},
)
"""Specs that a training begins with."""


def happen(world: World, event: Event, pick: int) -> None:
    """Let it happen, and check what can be checked without the operator."""
    if event in {operator_looks, operator_passes, going_on} or world.run is not None:
        event(world, pick)
        world.checks.writers()


def _broken(pick: int) -> BaseException:
    errors = (
        ApiError(500, "InternalError", "etcdserver: request timed out"),
        TimeoutError(),
        aiohttp.ClientError("connection reset"),
    )
    return errors[pick // 2 % len(errors)]


def _with_pod(world: World, pick: int, act: Callable[[Object], None]) -> None:
    pods = world.server.all(Kind.POD)
    if pods:
        act(pods[pick % len(pods)])


def _evaluating(world: World) -> list[Object]:
    return [pod for pod in world.server.all(Kind.POD) if role(pod) in EVALUATIONS and is_running(pod)]


def _delete(world: World, kind: Kind, pick: int) -> None:
    found = world.server.all(kind)
    if found:
        chosen = found[pick % len(found)]
        if kind is Kind.JOB:
            world.checks.removed_by_hand(chosen)
        world.server.remove(kind, chosen["metadata"]["name"])
