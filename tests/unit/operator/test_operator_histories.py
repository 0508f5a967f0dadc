"""Single histories in the world in memory: orders of events that are rare, and what holds in them."""

from __future__ import annotations

import pytest

from draftmill_operator.observe.store import Kind, Object
from draftmill_operator.run import Role
from tests.unit.operator.world import events
from tests.unit.operator.world.api import Fault, Killed
from tests.unit.operator.world.controllers import role
from tests.unit.operator.world.kubelet import NODES, ROWS
from tests.unit.operator.world.world import World


def until(world: World, phase: str) -> World:
    """All goes well until then."""
    for _ in range(100):
        if world.phase == phase:
            return world
        world.go_on()
    raise AssertionError(f"never {phase}: {world.status}")


def jobs(world: World, what: Role) -> list[str]:
    return [raw["metadata"]["name"] for raw in world.server.all(Kind.JOB) if role(raw) == what]


def pods(world: World, what: Role) -> list[Object]:
    return [raw for raw in world.server.all(Kind.POD) if role(raw) == what]


def test_a_number_is_not_used_again_when_workers_were_fewer_in_between() -> None:
    world = until(World(generation={"workers": 2}), "Running")
    world.edit_generation(workers=1)
    while jobs(world, Role.WORKER) != ["k25-10k-sr-worker-0-2"]:
        world.go_on()
    world.edit_generation(workers=2)
    while len(jobs(world, Role.WORKER)) < 2 or "k25-10k-sr-worker-0-2" in jobs(world, Role.WORKER):
        world.go_on()
    assert jobs(world, Role.WORKER) == ["k25-10k-sr-worker-0-3", "k25-10k-sr-worker-1-2"]


def test_a_run_is_not_suspended_before_the_pod_of_a_deleted_finish_is_gone() -> None:
    world = until(World(), "Finishing")
    while not pods(world, Role.FINISH):
        world.go_on()
    world.edit(suspend=True)
    world.server.remove(Kind.JOB, jobs(world, Role.FINISH)[0])
    world.settle()
    assert world.phase == "Suspending"
    until(world, "Suspended")


def test_an_edit_that_meets_the_operators_own_status_write_is_acted_on() -> None:
    world = until(World(), "Planning")
    while not jobs_of_state(world, Role.PLAN, "SuccessCriteriaMet"):
        step_unseen(world)
    world.edit(suspend=True)
    world.process.deliver(Kind.POD, 100)
    world.process.deliver(Kind.JOB, 100)
    world.operate()
    world.settle()
    assert world.phase == "Suspended"


def test_an_end_that_was_recorded_unheard_is_not_recorded_again() -> None:
    world = until(World(), "Finishing")
    while not jobs_of_state(world, Role.FINISH, "SuccessCriteriaMet"):
        world.settle()
        step_unseen(world)
    world.client.fault = Fault(0, Kind.SYNTH_RUN, lands=True, error=TimeoutError())
    world.process.deliver(Kind.POD, 100)
    world.process.deliver(Kind.JOB, 100)
    world.operate()
    assert world.process.has_failed
    status = world.status
    assert status["phase"] == "Succeeded"
    world.pass_time(5)
    world.operate()
    assert world.status == status


def test_no_attempt_starts_beside_an_old_one_whose_pod_is_not_known_yet() -> None:
    world = until(World(), "Starting")
    while not jobs(world, Role.WORKER):
        world.go_on()
    world.controllers.step()
    assert pods(world, Role.WORKER)
    world.edit_generation(workers=2)
    world.process.deliver(Kind.SYNTH_RUN, 100)
    world.operate()
    assert jobs(world, Role.WORKER) == ["k25-10k-sr-worker-0-1"]
    assert world.status["message"].endswith("waiting for Job k25-10k-sr-worker-0-1 to be gone")
    until(world, "Succeeded")


def test_a_job_that_was_made_unheard_is_not_taken_for_the_one_that_is_wanted_now() -> None:
    world = until(World(), "Starting")
    for _ in range(5):
        step_unseen(world)
    world.client.fault = Fault(0, Kind.JOB, lands=True, error=TimeoutError())
    world.process.deliver(Kind.POD, 100)
    world.operate()
    assert jobs(world, Role.WORKER) == ["k25-10k-sr-worker-0-1"]
    world.edit_generation(workers=2)
    world.pass_time(1)
    world.operate()
    assert jobs(world, Role.WORKER) == ["k25-10k-sr-worker-0-1"]
    until(world, "Succeeded")


def test_a_number_that_was_used_but_not_recorded_is_not_used_again() -> None:
    world = until(World(), "Starting")
    for _ in range(5):
        step_unseen(world)
    world.client.fault = Fault(0, Kind.JOB, lands=True, error=Killed())
    world.edit(restart="again")
    world.process.deliver(Kind.POD, 100)
    world.operate()
    assert jobs(world, Role.WORKER) == ["k25-10k-sr-worker-0-1"]
    until(world, "Succeeded")
    assert jobs(world, Role.WORKER) == ["k25-10k-sr-worker-0-2"]


def test_progress_is_that_of_all_rows_while_workers_of_other_shares_go() -> None:
    world = until(World(generation={"workers": 2}), "Running")
    world.edit_generation(workers=1)
    world.settle()
    assert world.status["progress"]["total"] == ROWS


def test_refused_pods_are_removed_as_soon_as_their_node_is_excluded() -> None:
    world = until(World(), "Starting")
    world.controllers.step()
    events.node_rejects_servers(world, 0)
    world.settle()
    refused = [pod for pod in pods(world, Role.SERVER) if pod["status"]["phase"] == "Failed"]
    assert len(refused) == 3
    assert all("deletionTimestamp" in pod["metadata"] for pod in refused)


@pytest.mark.parametrize("step", [Role.PLAN, Role.WORKER, Role.FINISH])
def test_a_node_that_refuses_the_pods_of_one_step_is_left_alone_by_them_and_costs_no_failure(
    step: Role,
) -> None:
    world = World(backoffLimit=0)
    for _ in range(200):
        refuse(world, step, "node-1")
        world.go_on()
    assert world.phase == "Succeeded"
    assert [(node["role"], node["name"]) for node in world.status["excludedNodes"]] == [(step, "node-1")]
    assert world.status["attempts"][0]["withoutProgress"] == 0


@pytest.mark.parametrize("step", [Role.PLAN, Role.WORKER, Role.FINISH])
def test_a_step_that_every_node_refuses_waits_and_goes_on_when_they_are_well_again(step: Role) -> None:
    world = World(backoffLimit=0)
    for _ in range(200):
        refuse(world, step, *NODES)
        world.go_on()
    assert (world.status["reason"], len(world.status["excludedNodes"])) == ("NodeRejects", len(NODES))
    world.ends(within=200)
    assert world.phase == "Succeeded"


def refuse(world: World, step: Role, *nodes: str) -> None:
    """The nodes refuse every pod of the step that has been placed on them."""
    for pod in pods(world, step):
        if pod["spec"].get("nodeName") in nodes:
            world.kubelet.reject(pod)


def test_what_the_answer_to_an_own_write_tells_of_a_child_is_told_in_the_status() -> None:
    world = until(World(), "Starting")
    world.controllers.refusal = "exceeded quota"
    world.controllers.step()
    world.edit_server(replicas=2)
    world.process.deliver(Kind.SYNTH_RUN, 100)
    world.operate()
    world.settle()
    assert world.status["message"] == "exceeded quota"


def test_counts_do_not_fall_to_an_older_answer_when_workers_that_have_ended_start_anew() -> None:
    world = until(World(), "Running")
    while pods(world, Role.WORKER)[0]["status"]["phase"] != "Succeeded":
        step_unseen(world)
    world.settle()
    assert world.status["progress"]["done"] == ROWS
    world.edit(restart="again")
    world.settle()
    assert world.status["progress"]["done"] == ROWS


def test_a_run_that_is_created_again_begins_anew_and_the_operator_is_patient_until_it_hears_of_it() -> None:
    world = until(World(), "Planning")
    while not jobs_of_state(world, Role.PLAN, "SuccessCriteriaMet"):
        step_unseen(world)
    world.recreate()
    world.process.deliver(Kind.POD, 100)
    world.process.deliver(Kind.JOB, 100)
    world.operate()
    assert world.process.has_failed
    assert world.status == {}
    until(world, "Succeeded")


def test_workers_that_paused_with_their_last_rows_and_are_stopped_have_done_their_work() -> None:
    world = until(World(), "Running")
    (worker,) = pods(world, Role.WORKER)
    world.kubelet.trip(worker, at_the_end=True)
    world.settle()
    assert world.phase == "Paused"
    world.server.mark_deleted(Kind.POD, worker["metadata"]["name"], grace=60)
    while world.phase == "Paused":
        world.go_on()
    assert world.phase == "Finishing"


def test_a_finish_that_had_answered_before_the_run_was_suspended_ends_it_when_it_goes_on() -> None:
    server = {"engine": "SGLang", "image": "i", "keepAfterSuccess": "1h"}
    world = until(World(server=server), "Finishing")
    while not jobs_of_state(world, Role.FINISH, "SuccessCriteriaMet"):
        world.settle()
        step_unseen(world)
    world.edit(suspend=True)
    world.settle()
    assert world.phase == "Suspending"
    world.edit(suspend=False)
    world.settle()
    assert world.phase == "Succeeded"


def step_unseen(world: World) -> None:
    """Controllers and nodes get on; the operator has not heard of it yet."""
    world.controllers.step()
    for pod in world.server.all(Kind.POD):
        world.kubelet.step(pod)


def jobs_of_state(world: World, what: Role, condition: str) -> list[Object]:
    found = [raw for raw in world.server.all(Kind.JOB) if role(raw) == what]
    return [raw for raw in found if condition in str((raw.get("status") or {}).get("conditions", ""))]
