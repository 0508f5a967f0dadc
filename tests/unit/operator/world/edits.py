"""What people do to a run: edits of its spec, and of what the cluster allows it."""

from __future__ import annotations

from tests.unit.operator.world.api import Fault, Killed
from tests.unit.operator.world.world import World


def run_is_recreated(world: World, pick: int) -> None:
    """Deleted and created again at once."""
    world.recreate()


def suspend_is_switched(world: World, pick: int) -> None:
    """On or off."""
    world.edit(suspend=pick % 2 == 0)


def suspend_is_toggled(world: World, pick: int) -> None:
    """On and off again before the operator sees the end of it."""
    world.edit(suspend=True)
    world.process.deliver_all()
    world.operate()
    world.edit(suspend=False)


def suspended_before_it_was_recorded(world: World, pick: int) -> None:
    """Children are made, the operator is killed before it can say so, and the run is suspended."""
    world.process.deliver_all()
    world.process.poll()
    world.client.fault = Fault(0, world.subject.kind, lands=False, error=Killed())
    world.make_pass()
    world.edit(suspend=True)
    world.start_operator()
    world.settle()


def workers_change(world: World, pick: int) -> None:
    """Another number of them."""
    world.edit_generation(workers=pick % 4 + 1)


def pod_overrides_change(world: World, pick: int) -> None:
    """Something else that all workers are started with."""
    world.edit_generation(pod={"labels": {"tier": f"t{pick % 2}"}})


def restart_is_asked(world: World, pick: int) -> None:
    """By another word."""
    world.edit(restart=f"again-{pick % 3}")


def resume_is_asked(world: World, pick: int) -> None:
    """By another word."""
    world.edit(resumeToken=f"go-{pick % 3}")


def policy_changes(world: World, pick: int) -> None:
    """Raised, so that the worst window passes, or lowered again."""
    world.edit_generation(errorPolicy={"window": 100, "pausePercent": 70 if pick % 2 else 50})


def replicas_change(world: World, pick: int) -> None:
    """Another number of servers."""
    world.edit_server(replicas=pick % 3 + 1)


def server_changes(world: World, pick: int) -> None:
    """Another image of the servers: all of them are replaced."""
    world.edit_server(image=f"server:{pick % 2}")


def nodes_change(world: World, pick: int) -> None:
    """Another number of ranks: all of them start anew."""
    world.edit(nodes=pick % 3 + 1)


def checkpoints_change(world: World, pick: int) -> None:
    """Something else that all ranks are started with."""
    world.edit(checkpoint={"keep": pick % 2 + 1})


def deadlines_change(world: World, pick: int) -> None:
    """Set or taken away."""
    spans = (None, "5m", "30m")
    world.edit(activeDeadline=spans[pick % 3], pendingDeadline=spans[pick // 3 % 3])


def keeping_changes(world: World, pick: int) -> None:
    """How long servers outlive the run."""
    world.edit_server(keepAfterSuccess=("1h", "10s")[pick % 2], keepAfterFailure=("10s", "1h")[pick % 2])


def ttl_changes(world: World, pick: int) -> None:
    """How long the run outlives its end."""
    world.edit(ttlAfterFinished=(None, "1h", "30s")[pick % 3])


def administrator_decides(world: World, pick: int) -> None:
    """Folders of the node may be used from now on, or no longer."""
    world.prefixes = ["/"] if pick % 4 else []
    world.start_operator()
