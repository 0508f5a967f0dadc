"""Losses in the middle of a run: workers, servers, messages, the operator itself."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from draftmill_api import names
from tests.api.operator_bed import Bed
from tests.support.played import (
    Player,
    answer,
    finish_message,
    plan_message,
    progress_server,
    worker_message,
)
from tests.support.waiting import quiet_for, until

pytestmark = pytest.mark.api


def finish(run: Player, records: int = 100) -> None:
    run.end("worker", message=worker_message(records, records))
    run.end("finish", message=finish_message(records))


def test_a_killed_worker_is_followed_by_the_next_attempt_at_once(bed: Bed) -> None:
    run = bed.create("killed")
    run.to_running()
    first = run.end("worker", exit_code=137)
    second = until(lambda: _other_worker(run, first), 30, "a second attempt")
    assert second.metadata.labels[names.LABEL_ATTEMPT] == "2"
    status = bed.kube.wait("killed", lambda s: s["attempts"][0]["count"] == 2, within=5)
    assert status["attempts"][0]["lastFailure"] == "exit code 137"
    until(lambda: len(run.jobs("worker")) == 1, 30, "the lost attempt's Job is gone")
    run.make_ready("worker")
    finish(run)
    bed.kube.wait_phase("killed", "Succeeded", within=30)


def test_a_worker_pod_deleted_by_hand_is_followed_by_the_next_attempt(bed: Bed) -> None:
    run = bed.create("deleted")
    run.to_running()
    pod = run.pod("worker")
    bed.kube.core.delete_namespaced_pod(pod.metadata.name, bed.kube.namespace)
    run.end_pod(pod, exit_code=75)
    second = until(lambda: _other_worker(run, pod), 30, "a second attempt")
    assert second.metadata.labels[names.LABEL_ATTEMPT] == "2"


def test_a_worker_job_deleted_by_hand_is_followed_by_the_next_attempt(bed: Bed) -> None:
    run = bed.create("jobless")
    run.to_running()
    (job,) = run.jobs("worker")
    bed.kube.batch.delete_namespaced_job(
        job.metadata.name, bed.kube.namespace, propagation_policy="Foreground"
    )
    until(lambda: [j.metadata.labels[names.LABEL_ATTEMPT] for j in run.jobs("worker")] == ["2"], 30, "2")


def test_failures_without_progress_end_the_run(bed: Bed) -> None:
    run = bed.create("hopeless", backoffLimit=1)
    run.to_running()
    first = run.end("worker", exit_code=1, message="boot\ndisk on fire\n")
    until(lambda: _other_worker(run, first), 30, "a second attempt")
    run.end("worker", exit_code=1, message="boot\ndisk on fire\n")
    status = bed.kube.wait("hopeless", lambda s: s["phase"] == "Failed", within=30)
    assert status["reason"] == "BackoffLimitExceeded"
    assert "exit code 1: disk on fire" in status["message"]
    until(lambda: not bed.deployments("hopeless"), 30, "no servers")


def test_a_lost_server_is_replaced_and_the_worker_told_its_new_address(bed: Bed) -> None:
    run = bed.create("serverless")
    run.to_running()
    server, worker = run.pod("server"), run.pod("worker")
    bed.kube.core.delete_namespaced_pod(server.metadata.name, bed.kube.namespace)
    bed.wait_condition("serverless", "ServersReady", "False", "Starting")
    assert run.config()["endpoints"] == []
    new = run.make_ready("server", "127.9.9.9")
    until(lambda: run.config()["endpoints"], 30, "an endpoint")
    assert run.config()["endpoints"] == [
        {"name": new.metadata.name, "url": "http://127.9.9.9:8000", "engine": "SGLang"}
    ]
    bed.wait_condition("serverless", "ServersReady", "True", "AllReady")
    assert run.pod("worker").metadata.name == worker.metadata.name
    until(lambda: _annotated_config(run) not in {None, _annotation_of(worker)}, 30, "a new config hash")


def test_a_finish_whose_message_is_lost_runs_again(bed: Bed) -> None:
    run = bed.create("mute")
    run.to_running()
    run.end("worker")
    first = run.end("finish", message="")
    second = until(lambda: _other_pod(run, "finish", first), 30, "a second finish")
    run.end_pod(second, message=finish_message(100))
    bed.kube.wait_phase("mute", "Succeeded", within=30)


def test_a_run_that_ends_while_the_operator_is_down_is_finished_by_the_next_one(own_bed: Bed) -> None:
    run = own_bed.create("alone")
    run.to_running()
    own_bed.operator.kill()
    run.end("worker", message=worker_message(100, 100))
    until(lambda: run.jobs("worker")[0].status.succeeded, 30, "the worker's Job is complete")
    own_bed.operator.start()
    run.end("finish", message=finish_message(100))
    own_bed.kube.wait_phase("alone", "Succeeded", within=30)


def test_an_ended_run_starts_nothing_again(own_bed: Bed) -> None:
    run = own_bed.create("ended", endpoints=[{"name": "o", "url": "http://10.0.0.5:8000", "engine": "VLLM"}])
    run.end("plan", message=plan_message(100))
    finish(run)
    status = own_bed.kube.wait_phase("ended", "Succeeded", within=30)
    for role in ("plan", "worker", "finish"):
        for job in run.jobs(role):
            own_bed.kube.batch.delete_namespaced_job(
                job.metadata.name, own_bed.kube.namespace, propagation_policy="Background"
            )
    until(lambda: not any(run.jobs(role) for role in ("plan", "worker", "finish")), 30, "no Jobs")
    own_bed.operator.kill()
    own_bed.operator.start()
    before = len(own_bed.writes())
    own_bed.make_pass("ended")
    assert not any(run.jobs(role) for role in ("plan", "worker", "finish"))
    assert own_bed.kube.status("ended") == status
    assert len(own_bed.writes()) == before


def test_an_operator_killed_anywhere_is_followed_by_one_that_goes_on(own_bed: Bed) -> None:
    """Killed after every step and at random moments: one plan, one worker, one finish, right counts."""
    chance = random.Random(20260101)
    run = own_bed.create("tossed")
    with progress_server(answer(10, 100)) as progress:
        steps: list[Callable[[], object]] = [
            lambda: run.end("plan", message=plan_message(100)),
            lambda: run.make_ready("server"),
            lambda: run.make_ready("worker", progress.address),
            lambda: run.end("worker", message=worker_message(100, 100)),
            lambda: run.end("finish", message=finish_message(100)),
        ]
        for step in steps:
            step()
            quiet_for(chance.uniform(0, 0.5))
            own_bed.operator.kill()
            own_bed.operator.begin()
    status = own_bed.kube.wait_phase("tossed", "Succeeded", within=60)
    assert status["progress"]["done"] == 100
    assert status["attempts"][0]["count"] == 1
    assert [len(run.jobs(role)) for role in ("plan", "worker", "finish")] == [1, 1, 1]


def _other_worker(run: Player, known: Any) -> Any:
    return _other_pod(run, "worker", known)


def _other_pod(run: Player, role: str, known: Any) -> Any:
    pods = run.kube.pods(run.run, role)
    return next((pod for pod in pods if pod.metadata.uid != known.metadata.uid), None)


def _annotation_of(pod: Any) -> str | None:
    return (pod.metadata.annotations or {}).get(names.ANNOTATION_CONFIG_HASH)


def _annotated_config(run: Player) -> str | None:
    return _annotation_of(run.pod("worker"))
