"""An API server that refuses, and watches that break, end or fall silent."""

from __future__ import annotations

import asyncio
import contextlib
import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from draftmill_api import names
from draftmill_dev.cluster import ControlPlane
from draftmill_operator.freshness import Freshness
from draftmill_operator.kube.client import KubeClient
from draftmill_operator.kube.connection import from_kubeconfig
from draftmill_operator.kube.limiter import TokenBucket
from draftmill_operator.observe.store import Kind, Store
from draftmill_operator.run import RunKey
from draftmill_operator.watch import Intake, seed
from tests.api.operator_account import operator_account
from tests.api.operator_bed import Bed, namespace
from tests.support.faulty_api import FaultyApi, faulty_api
from tests.support.operator_process import operator_process
from tests.support.played import answer, finish_message, plan_message, progress_server, worker_message
from tests.support.waiting import quiet_for, until

pytestmark = pytest.mark.api

IMPATIENT = """
import sys
from draftmill_operator import freshness
from draftmill_operator.__main__ import main
freshness.PERIOD = freshness.SUSPICIOUS_PERIOD = 0.5
freshness.STALE_AFTER = 1.0
sys.exit(main())
"""
"""The operator's program, to which a change that is missing for a second is missing for too long."""


@dataclass(frozen=True)
class FaultyBed(Bed):
    """A bed whose operator reaches the API server through a proxy."""

    api: FaultyApi


@pytest.fixture
def faulty(control_plane: ControlPlane, crds: None, tmp_path: Path) -> Iterator[FaultyBed]:
    with (
        contextlib.contextmanager(namespace)(control_plane, f"op-{uuid.uuid4().hex[:8]}") as cluster,
        faulty_api(operator_account(control_plane, cluster.namespace, tmp_path), tmp_path) as api,
        operator_process(api.kubeconfig, cluster.namespace, tmp_path) as operator,
    ):
        operator.start()
        yield FaultyBed(cluster, operator, control_plane.audit_log, api)


def whole_run(bed: Bed, name: str) -> None:
    run = bed.create(name)
    run.end("plan", message=plan_message(100))
    run.make_ready("server")
    run.make_ready("worker")
    run.end("worker", message=worker_message(100, 100))
    run.end("finish", message=finish_message(100))
    bed.kube.wait_phase(name, "Succeeded", within=60)
    assert [len(run.jobs(role)) for role in ("plan", "worker", "finish")] == [1, 1, 1]


def test_one_write_in_five_in_conflict_and_the_run_still_succeeds(faulty: FaultyBed) -> None:
    chance = random.Random(7)

    def conflict(method: str, path: str) -> int | None:
        return 409 if method == "PATCH" and "leases" not in path and chance.random() < 0.2 else None

    faulty.api.fault = conflict
    whole_run(faulty, "conflicts")


def test_a_busy_api_server_is_asked_again(faulty: FaultyBed) -> None:
    chance = random.Random(7)

    def busy(method: str, path: str) -> int | None:
        return chance.choice((429, 503)) if "leases" not in path and chance.random() < 0.2 else None

    faulty.api.fault = busy
    whole_run(faulty, "busy")
    assert faulty.api.refused > 0


def test_a_child_that_fails_on_the_server_leaves_phase_and_counts_and_is_told(faulty: FaultyBed) -> None:
    run = faulty.create("broken")
    run.pod("plan")
    faulty.kube.wait_phase("broken", "Planning", within=10)
    faulty.api.fault = lambda method, path: 500 if "deployments" in path and method == "PATCH" else None
    run.end("plan", message=plan_message(100))
    condition = faulty.wait_condition("broken", "Progressing", "False", "ChildCreateFailed", within=30)
    assert "made by the test" in condition["message"]
    status = faulty.kube.status("broken")
    assert (status["phase"], status["plan"]["rows"]) == ("Starting", 100)
    faulty.api.fault = lambda _method, _path: None
    run.make_ready("server")
    with progress_server(answer(40, 100)) as progress:
        worker = run.make_ready("worker", progress.address)
        faulty.kube.wait("broken", lambda s: s.get("progress", {}).get("done") == 40, within=60)
        faulty.api.fault = lambda method, path: 500 if "/jobs" in path and method == "PATCH" else None
        run.end_pod(worker, exit_code=137)
        faulty.wait_condition("broken", "Progressing", "False", "ChildCreateFailed", within=30)
        status = faulty.kube.status("broken")
        assert (status["phase"], status["progress"]["done"]) == ("Running", 40)
        faulty.api.fault = lambda _method, _path: None
        assert run.pod("worker").metadata.labels[names.LABEL_ATTEMPT] == "2"


def test_a_namespace_that_ends_is_left_to_end(faulty: FaultyBed) -> None:
    run = faulty.create("closing")
    run.pod("plan")
    faulty.api.cause = "NamespaceTerminating"
    faulty.api.fault = lambda method, path: 403 if "deployments" in path and method == "PATCH" else None
    run.end("plan", message=plan_message(100))
    faulty.kube.wait_phase("closing", "Starting", within=60)
    until(lambda: faulty.api.refused, 60, "a refusal")
    quiet_for(1)
    refused = faulty.api.refused
    quiet_for(3)
    assert faulty.api.refused == refused, "it is not tried again"
    assert faulty.condition("closing", "Progressing")["reason"] == "Starting"


def test_watches_that_break_are_taken_up_again(faulty: FaultyBed) -> None:
    run = faulty.create("cut")
    plan = run.pod("plan")
    faulty.api.break_watches()
    run.end_pod(plan, message=plan_message(100))
    run.pod("server", within=30)


def test_what_is_deleted_before_the_watches_begin_is_made_again(faulty: FaultyBed) -> None:
    run = faulty.create("gap")
    first = run.pod("plan")
    faulty.operator.stop()
    lists: list[str] = []

    def deletes_the_job_before_it_is_listed_again(method: str, path: str) -> None:
        if method == "GET" and path.endswith("/jobs"):
            lists.append(path)
            if len(lists) == 2:  # the first fills the cache, the second begins the watch
                faulty.kube.batch.delete_namespaced_job(
                    first.metadata.labels["job-name"], faulty.kube.namespace, propagation_policy="Background"
                )

    faulty.api.fault = deletes_the_job_before_it_is_listed_again
    faulty.operator.start()

    def another() -> Any:
        pods = faulty.kube.pods("gap", "plan")
        return next((pod for pod in pods if pod.metadata.uid != first.metadata.uid), None)

    again = until(another, 30, "another plan")
    assert again.metadata.labels["job-name"] == first.metadata.labels["job-name"]


def test_a_watch_that_falls_silent_ends_liveness_until_it_delivers_again(faulty: FaultyBed) -> None:
    faulty.operator.stop()
    faulty.operator.program = ("-c", IMPATIENT)
    faulty.operator.start()
    faulty.create("seen")
    faulty.kube.wait_phase("seen", "Planning", within=30)
    assert faulty.operator.get("/livez") == (200, "ok")

    def complains(code: int, text: str) -> bool:
        return code == 500 and "the watch of SynthRun does not deliver" in text

    faulty.api.watch_delay = 3600.0
    faulty.create("unseen")
    until(lambda: complains(*faulty.operator.get("/livez")), 30, "the complaint")
    assert complains(*faulty.operator.get("/readyz"))
    assert faulty.kube.status("unseen") == {}

    faulty.api.watch_delay = 0.0
    faulty.api.break_watches()
    until(lambda: faulty.operator.get("/livez") == (200, "ok"), 30, "the end of the complaint")
    faulty.kube.wait_phase("unseen", "Planning", within=30)


def test_a_cache_that_lags_behind_starts_nothing_twice(faulty: FaultyBed) -> None:
    faulty.api.watch_delay = 5
    whole_run(faulty, "lagging")
    assert faulty.kube.status("lagging")["attempts"][0]["count"] == 1


def test_an_error_in_a_watch_ends_the_process(faulty: FaultyBed) -> None:
    faulty.api.watch_error = 500
    faulty.create("error")
    assert faulty.operator.wait(60) == 1


def test_a_lost_lease_ends_the_process(faulty: FaultyBed) -> None:
    faulty.api.fault = lambda _method, path: 500 if "leases" in path else None
    assert faulty.operator.wait(90) == 1
    assert "could not be renewed" in faulty.operator.log()


def test_a_second_operator_waits_for_the_first(faulty: FaultyBed, tmp_path: Path) -> None:
    folder = tmp_path / "second"
    folder.mkdir()
    with operator_process(faulty.api.direct_kubeconfig, faulty.kube.namespace, folder) as second:
        second.identity = "draftmill-operator-1"
        second.begin()
        until(lambda: second.get("/livez")[0] == 200, 90, second.log)
        assert second.get("/readyz")[0] == 500
        assert faulty.operator.stop() == 0
        until(second.is_ready, 60, second.log)


def test_an_operator_without_the_crd_says_so_and_ends(
    control_plane: ControlPlane, crds: None, tmp_path: Path
) -> None:
    with (
        faulty_api(operator_account(control_plane, "default", tmp_path), tmp_path) as api,
        operator_process(api.kubeconfig, "default", tmp_path) as operator,
    ):
        api.fault = lambda _method, path: 404 if "synthruns" in path else None
        operator.begin()
        assert operator.wait(90) == 1
        assert "the operator ends" in operator.log()


async def test_a_change_that_no_watch_brings_is_missed_and_a_deletion_healed(own_bed: Bed) -> None:
    """The comparison that liveness rests on, with a cache that no watch feeds."""
    own_bed.operator.stop()
    own_bed.create("compared")
    now, called, store = 0.0, [], Store()

    def changed(key: RunKey) -> None:
        called.append(key.name)

    client = KubeClient(from_kubeconfig(own_bed.operator.kubeconfig), TokenBucket(50, 100, lambda: 0.0))
    namespaces = (own_bed.kube.namespace,)
    freshness = Freshness(client, store, namespaces, changed, listed=asyncio.Event(), clock=lambda: now)
    try:
        await freshness.compare(Kind.SYNTH_RUN)
        now = 89.0
        assert freshness.stale_kinds() == []
        now = 91.0
        assert freshness.stale_kinds() == [Kind.SYNTH_RUN]

        await seed(client, Intake(store, changed), namespaces)
        await freshness.compare(Kind.SYNTH_RUN)
        assert freshness.stale_kinds() == []

        own_bed.kube.delete_run("compared")
        called.clear()
        await freshness.compare(Kind.SYNTH_RUN)
        assert called == [], "a watch may still say it"
        await freshness.compare(Kind.SYNTH_RUN)
        assert called == ["compared"]
        assert list(store.runs()) == []
    finally:
        await client.close()
