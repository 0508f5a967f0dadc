"""Paused by the error policy, started anew by a word: what the workers are told, and what is recorded."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from draftmill_api import names
from draftmill_api.jobconfig import config_hash
from draftmill_api.progress import WorkerState
from tests.api.operator_bed import Bed
from tests.support.played import (
    Player,
    answer,
    finish_message,
    progress_server,
    refusal_message,
    worker_message,
)
from tests.support.waiting import until

pytestmark = pytest.mark.api

WORDS = "27 of the last 500 rows failed, 5.4 %: more than the 5 % of errorPolicy.pausePercent"
PAUSED = answer(40, 100, state=WorkerState.PAUSED, recent_errors=27, message=WORDS)
WORKS = answer(41, 100)


def test_a_paused_run_says_so_and_goes_on_when_its_policy_is_raised_or_it_is_told_to(bed: Bed) -> None:
    run = bed.create("tripped")
    with progress_server(answer(10, 100)) as progress:
        _, worker = run.to_running(address=progress.address)
        bed.kube.wait_phase("tripped", "Running", within=60)
        progress.answer = PAUSED
        status = bed.kube.wait_phase("tripped", "Paused", within=60)
        assert (status["reason"], status["message"]) == ("ErrorPolicyTripped", WORDS)
        assert bed.condition("tripped", "Paused")["status"] == "True"
        assert "running" not in status["clock"]

        bed.edit("tripped", resumeToken="look-again")
        until(lambda: run.config().get("resumeToken") == "look-again", 60, "the token in the job config")
        until(lambda: told(run) == config_hash(run.config_text()), 60, "the kubelet is told")
        progress.answer = WORKS
        bed.kube.wait_phase("tripped", "Running", within=60)
        assert bed.condition("tripped", "Paused")["status"] == "False"

        progress.answer = PAUSED
        bed.kube.wait_phase("tripped", "Paused", within=60)
        bed.edit("tripped", generation={"errorPolicy": {"pausePercent": 10}})
        until(lambda: policy(run)["pausePercent"] == 10, 60, "the policy in the job config")
        progress.answer = WORKS
        bed.kube.wait_phase("tripped", "Running", within=60)
        assert run.pod("worker").metadata.uid == worker.metadata.uid, "nothing was started anew"
    twice = {("Warning", "ErrorPolicyTripped"): 2, ("Normal", "Resumed"): 2}
    until(lambda: of_pauses(bed, "tripped") == twice, 30, lambda: str(bed.events("tripped")))


def test_a_run_that_stays_paused_frees_its_servers_and_goes_on_with_the_next_attempt(bed: Bed) -> None:
    run = bed.create("freed", generation={"onPause": {"freeServersAfter": "2s"}})
    with progress_server(PAUSED) as progress:
        run.to_running(address=progress.address)
        bed.kube.wait("freed", lambda s: s.get("pause", {}).get("freed"), within=60)
        until(lambda: not bed.deployments("freed"), 60, "no servers")
        until(lambda: not run.jobs("worker"), 60, "no workers")
        bed.make_pass("freed")
        status = bed.kube.status("freed")
        assert status["phase"] == "Paused"
        assert status["message"] == f"{WORDS}; its workers and servers were removed meanwhile"
        assert (run.jobs("worker"), bed.deployments("freed")) == ([], [])

        progress.answer = WORKS
        bed.edit("freed", generation={"errorPolicy": {"pausePercent": 6}})
        run.make_ready("server")
        worker = run.make_ready("worker", progress.address)
        assert worker.metadata.labels[names.LABEL_ATTEMPT] == "2"
        status = bed.kube.wait_phase("freed", "Running", within=60)
        assert "pause" not in status
    once = {("Warning", "ErrorPolicyTripped"): 1, ("Normal", "Resumed"): 1}
    until(lambda: of_pauses(bed, "freed") == once, 30, lambda: str(bed.events("freed")))


@pytest.mark.parametrize("word", ["resumeToken", "restart"])
def test_a_freed_run_goes_on_when_it_is_told_to(bed: Bed, word: str) -> None:
    name = f"told-{word.lower()}"
    run = bed.create(name, generation={"onPause": {"freeServersAfter": "1s"}})
    with progress_server(PAUSED) as progress:
        run.to_running(address=progress.address)
        bed.kube.wait(name, lambda s: s.get("pause", {}).get("freed"), within=60)
        until(lambda: not bed.kube.pods(name, "server"), 60, "its server is gone")
        progress.answer = WORKS
        bed.edit(name, **{word: "go"})
        run.make_ready("server")
        run.make_ready("worker", progress.address)
        bed.kube.wait_phase(name, "Running", within=60)


def test_restart_starts_the_workers_anew_with_their_failures_forgotten(bed: Bed) -> None:
    run = bed.create("anew")
    _, first = run.to_running()
    (deployment,) = bed.deployments("anew")
    run.end("worker", exit_code=137)
    until(lambda: attempt_of(run) == 2, 60, "the second attempt")
    assert bed.kube.status("anew")["attempts"][0]["withoutProgress"] == 1
    second = run.make_ready("worker")

    bed.edit("anew", restart="once-more")
    until(lambda: attempt_of(run) == 3, 60, "the third attempt")
    status = bed.kube.wait("anew", lambda s: s.get("restartServed") == "once-more", within=60)
    (record,) = status["attempts"]
    assert (record["count"], record["withoutProgress"]) == (3, 0)
    until(lambda: len(run.jobs("worker")) == 1, 60, "one Job")
    assert run.make_ready("worker").metadata.uid not in {first.metadata.uid, second.metadata.uid}
    assert run.config()["run"]["restart"] == "once-more"
    (still,) = bed.deployments("anew")
    assert still.metadata.generation == deployment.metadata.generation, "the servers stay"
    assert bed.events("anew").count(("Normal", "Restarted")) == 1
    assert bed.events("anew").count(("Warning", "AttemptFailed")) == 1

    run.end("worker", message=worker_message(100, 100))
    run.end("finish", message=finish_message(100))
    bed.kube.wait_phase("anew", "Succeeded", within=60)
    jobs = {job.metadata.uid for role in ("plan", "worker", "finish") for job in run.jobs(role)}
    bed.edit("anew", restart="too-late")
    status = bed.kube.wait("anew", lambda s: s["observedGeneration"] == 3, within=60)
    assert (status["phase"], status["restartServed"]) == ("Succeeded", "once-more")
    assert jobs == {job.metadata.uid for role in ("plan", "worker", "finish") for job in run.jobs(role)}


def test_a_worker_that_refuses_ends_the_run_in_its_words(bed: Bed) -> None:
    run = bed.create("disagreeing")
    run.to_running()
    words = "server one answers token 5 where 6 was sent"
    run.end("worker", exit_code=2, message=refusal_message("PreflightFailed", words))
    status = bed.kube.wait("disagreeing", lambda s: s["phase"] == "Failed", within=30)
    assert (status["reason"], status["message"]) == ("PreflightFailed", words)
    until(lambda: not bed.deployments("disagreeing"), 30, "no servers")
    until(lambda: bed.events("disagreeing").count(("Warning", "PreflightFailed")) == 1, 30, "one event")


def told(run: Player) -> str | None:
    return dict(run.pod("worker").metadata.annotations).get(names.ANNOTATION_CONFIG_HASH)


def policy(run: Player) -> dict[str, Any]:
    return dict(run.config()["generation"]["errorPolicy"])


def attempt_of(run: Player) -> int:
    return int(run.pod("worker").metadata.labels[names.LABEL_ATTEMPT])


def of_pauses(bed: Bed, name: str) -> Counter[tuple[str, str]]:
    return Counter(event for event in bed.events(name) if event[1] in {"ErrorPolicyTripped", "Resumed"})
