"""Stop and go: suspend frees everything, resume goes on, however fast it is toggled."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from draftmill_api import names
from tests.api.operator_bed import Bed
from tests.support.played import Player, plan_message
from tests.support.played_node import played_node
from tests.support.waiting import quiet_for, until

pytestmark = pytest.mark.api


def test_a_run_that_is_created_suspended_starts_nothing_until_it_is_resumed(bed: Bed) -> None:
    run = bed.create("late", suspend=True)
    status = bed.kube.wait_phase("late", "Suspended", within=60)
    assert "startTime" not in status
    bed.make_pass("late")
    assert bed.kube.children("late") == []
    bed.edit("late", suspend=False)
    run.pod("plan")
    bed.kube.wait_phase("late", "Planning", within=60)


def test_a_run_is_suspended_when_its_last_pod_is_gone_and_goes_on_with_the_next_attempt(
    own_bed: Bed,
) -> None:
    run = own_bed.create("halted")
    with played_node(own_bed.kube, "halting") as node:
        server, worker = run.to_running(node=node)
        node.lets_go = False
        own_bed.edit("halted", suspend=True)
        until(lambda: all(pod.metadata.deletion_timestamp for pod in node.pods()), 60, "both pods go")
        message = own_bed.kube.wait_phase("halted", "Suspending", within=60)["message"]
        assert message == f"waiting for pod {worker.metadata.name} and 1 more to be gone"
        node.let_go(worker)
        waiting = f"waiting for pod {server.metadata.name} to be gone"
        own_bed.kube.wait("halted", lambda s: s["message"] == waiting, within=60)
        assert own_bed.kube.status("halted")["phase"] == "Suspending"
        node.let_go(server)
        own_bed.kube.wait_phase("halted", "Suspended", within=60)
        assert (run.jobs("worker"), own_bed.deployments("halted")) == ([], [])

        own_bed.make_pass("halted")
        writes, passes = len(own_bed.writes()), own_bed.passes()
        quiet_for(5)
        assert own_bed.passes() == passes, "nothing is looked at again"
        own_bed.make_pass("halted")
        assert own_bed.writes()[writes:] == []

        node.lets_go = True
        own_bed.edit("halted", suspend=False)
        run.make_ready("server", node=node)
        again = run.make_ready("worker", node=node)
        assert again.metadata.labels[names.LABEL_ATTEMPT] == "2"
        status = own_bed.kube.wait_phase("halted", "Starting", "Running", within=60)
        (record,) = status["attempts"]
        assert (record["count"], record["lastFailedAttempt"]) == (2, 0), "it is no failure"
        assert own_bed.events("halted").count(("Normal", "Suspended")) == 1
        assert own_bed.events("halted").count(("Normal", "Resumed")) == 1


def test_suspend_toggled_fast_leaves_no_pod_behind_and_never_two_attempts_at_once(bed: Bed) -> None:
    run = bed.create("toggled")
    with played_node(bed.kube, "toggling") as node:
        run.to_running(node=node)
        with most_at_once(run, "worker") as most:
            for turn in range(10):
                bed.edit("toggled", suspend=turn % 2 == 0)
            run.make_ready("server", node=node)
            run.make_ready("worker", node=node)
            for turn in range(9):
                bed.edit("toggled", suspend=turn % 2 == 0)
            bed.kube.wait_phase("toggled", "Suspended", within=60)
        assert most == [1]
        assert [bed.kube.pods("toggled", role) for role in ("server", "worker")] == [[], []]
        bed.edit("toggled", suspend=False)
        run.make_ready("server", node=node)
        run.make_ready("worker", node=node)
        assert [len(bed.kube.pods("toggled", role)) for role in ("server", "worker")] == [1, 1]


def test_a_run_that_is_suspended_in_its_plan_plans_again(bed: Bed) -> None:
    run = bed.create("unplanned")
    first = run.pod("plan")
    bed.edit("unplanned", suspend=True)
    bed.kube.wait_phase("unplanned", "Suspended", within=60)
    bed.edit("unplanned", suspend=False)
    assert run.pod("plan").metadata.uid != first.metadata.uid
    run.end("plan", message=plan_message(100))
    run.pod("server")


def test_the_clock_of_the_active_deadline_stands_still_while_suspended(bed: Bed) -> None:
    run = bed.create("timed", activeDeadline="1h")
    with played_node(bed.kube, "timing") as node:
        run.to_running(node=node)
        until(lambda: clock(bed, "timed").get("running") == "Active", 60, "the clock runs")
        bed.edit("timed", suspend=True)
        bed.kube.wait_phase("timed", "Suspended", within=60)
        counted = clock(bed, "timed").get("activeSeconds", 0)
        assert "running" not in clock(bed, "timed")
        quiet_for(4)
        resumed = datetime.now(UTC)
        bed.edit("timed", suspend=False, activeDeadline=f"{counted + 4}s")
        status = bed.kube.wait("timed", lambda s: s["phase"] == "Failed", within=60)
    assert status["reason"] == "DeadlineExceeded"
    ended = datetime.fromisoformat(status["completionTime"])
    assert (ended - resumed).total_seconds() >= 2, "the time of suspension was not counted"
    assert status["clock"]["activeSeconds"] >= counted + 3
    until(lambda: not bed.deployments("timed"), 30, "no servers")


def test_a_run_that_is_never_placed_fails_at_its_pending_deadline(bed: Bed) -> None:
    unplanned = bed.create("unseen", pendingDeadline="3s")
    words = "0/4 nodes are available: 4 Insufficient nvidia.com/gpu."
    unplaced = bed.create("unplaced", pendingDeadline="1h")
    unplaced.end("plan", message=plan_message(100))
    pod = unplaced.pod("server")
    unplaced.set_status(
        pod,
        conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}],
    )
    bed.kube.wait("unplaced", lambda s: s.get("reason") == "Unschedulable", within=60)
    since = datetime.now(UTC) - datetime.fromisoformat(clock(bed, "unplaced")["since"])
    bed.edit("unplaced", pendingDeadline=f"{int(since.total_seconds()) + 3}s")
    for name in ("unseen", "unplaced"):
        status = bed.kube.wait(name, lambda s: s["phase"] == "Failed", within=60)
        assert status["reason"] == "PendingDeadlineExceeded"
    assert words in bed.kube.status("unplaced")["message"]
    until(lambda: not unplanned.jobs("plan"), 30, "no plan")
    until(lambda: not bed.deployments("unplaced"), 30, "no servers")


def test_a_run_whose_image_cannot_be_pulled_lets_its_node_go_at_its_pending_deadline(bed: Bed) -> None:
    words = 'failed to resolve reference "docker.io/lmsysorg/sglang:v0": not found'
    run = bed.create("unpulled", pendingDeadline="1h")
    run.end("plan", message=plan_message(100))
    with played_node(bed.kube, "pulling") as node:
        pod = run.pod("server")
        node.take(pod)
        run.wait_with(pod, "ImagePullBackOff", f'Back-off pulling image "sglang:v0": ErrImagePull: {words}')
        status = bed.kube.wait("unpulled", lambda s: s.get("reason") == "ImagePullBackOff", within=30)
        assert (status["message"], status["clock"]["running"]) == (words, "Pending")
        bed.edit("unpulled", pendingDeadline="1s")
        status = bed.kube.wait("unpulled", lambda s: s["phase"] == "Failed", within=30)
        assert status["reason"] == "PendingDeadlineExceeded"
        assert status["message"].endswith(f"last: {words}")
        until(lambda: not node.pods(), 30, "the node is free")


def clock(bed: Bed, name: str) -> dict[str, Any]:
    return dict(bed.kube.status(name).get("clock", {}))


@contextmanager
def most_at_once(run: Player, role: str) -> Iterator[list[int]]:
    """Looks all the time; when the block is over, the list has the most pods of a role at once."""
    most, stopped = 0, threading.Event()
    found: list[int] = []

    def look() -> None:
        nonlocal most
        while not stopped.wait(0.02):
            selector = f"{names.LABEL_RUN}={run.run},{names.LABEL_ROLE}={role}"
            pods = run.kube.core.list_namespaced_pod(run.kube.namespace, label_selector=selector).items
            alive = [pod for pod in pods if pod.status.phase in {"Pending", "Running"}]
            most = max(most, len(alive))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        stopped.set()
        thread.join()
        found.append(most)
