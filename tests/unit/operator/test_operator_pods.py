from __future__ import annotations

import json
from typing import Any

import pytest

from draftmill_operator.observe.pods import observe_pod
from draftmill_operator.observe.types import Problem
from tests.support.played import refusal_message
from tests.unit.operator.builders import pod, servers


def raw_pod(status: dict[str, Any], role: str = "server", **metadata: Any) -> dict[str, Any]:
    base = {
        "name": "p",
        "uid": "u",
        "namespace": "n",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"draftmill.dev/role": role},
    }
    return {"metadata": base | metadata, "status": status}


def container(state: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "phase": "Running",
        "containerStatuses": [{"name": "server", "ready": False, "state": state} | fields],
    }


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


def crashed(code: int, message: str = "", reason: str = "Error") -> dict[str, Any]:
    return {"lastState": {"terminated": {"exitCode": code, "reason": reason, "message": message}}}


UNSCHEDULABLE = {
    "phase": "Pending",
    "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    ],
}


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        ({}, None),
        (UNSCHEDULABLE, Problem("Unschedulable", "0/3 nodes")),
        (container(waiting("ContainerCreating")), None),
        (container(waiting("PodInitializing")), None),
        (container(waiting("ErrImagePull", "not found")), Problem("ImagePullBackOff", "not found")),
        (
            container(waiting("ImagePullBackOff", 'Back-off pulling image "i": ErrImagePull: not found')),
            Problem("ImagePullBackOff", "not found"),
        ),
        (
            container(waiting("ImagePullBackOff", 'Back-off pulling image "i"')),
            Problem("ImagePullBackOff", 'Back-off pulling image "i"'),
        ),
        (container(waiting("RegistryUnavailable", "no route")), Problem("ImagePullBackOff", "no route")),
        (
            container(waiting("SignatureValidationFailed", "unsigned")),
            Problem("ImagePullBackOff", "unsigned"),
        ),
        (container(waiting("InvalidImageName", "no name")), Problem("InvalidImageName", "no name")),
        (container(waiting("ErrImageNeverPull", "absent")), Problem("ErrImageNeverPull", "absent")),
        (
            container(waiting("CreateContainerConfigError", 'secret "s" not found')),
            Problem("CreateContainerConfigError", 'secret "s" not found'),
        ),
        (
            container(waiting("CrashLoopBackOff", "back-off 10s"), **crashed(1, "a\nlast words\n")),
            Problem("CrashLoopBackOff", "exit code 1: last words"),
        ),
        (
            container({"running": {}}, restartCount=1, **crashed(1, "last words")),
            Problem("ServerCrashed", "exit code 1: last words"),
        ),
        (
            container({"running": {}}, restartCount=2, **crashed(1, "last words")),
            Problem("CrashLoopBackOff", "exit code 1: last words"),
        ),
        (
            container(waiting("CrashLoopBackOff"), **crashed(137, "", "OOMKilled")),
            Problem("OOMKilled", "exit code 137 (OOMKilled)"),
        ),
        (container({"running": {}}, ready=True, **crashed(1)), None),
        (
            {"phase": "Failed", "reason": "Evicted", "message": "low on memory"},
            Problem("Evicted", "low on memory"),
        ),
        (
            {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no healthy GPU"},
            Problem("UnexpectedAdmissionError", "no healthy GPU"),
        ),
    ],
)
def test_what_is_wrong_with_a_pod(status: dict[str, Any], problem: Problem | None) -> None:
    assert observe_pod(raw_pod(status)).problem == problem


def ended(text: str, code: int = 2) -> dict[str, Any]:
    return container({"terminated": {"exitCode": code, "reason": "Error", "message": text}})


@pytest.mark.parametrize(("role", "name"), [("server", "server"), ("worker", "draftmill")])
def test_a_container_that_was_injected_does_not_speak_for_the_pod(role: str, name: str) -> None:
    sidecar = {
        "name": "istio-proxy",
        "ready": True,
        "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
    }
    own = {"name": name, "ready": False, "state": {"terminated": {"exitCode": 2, "message": "no model"}}}
    status = {"phase": "Running", "containerStatuses": [sidecar, own]}
    pod = observe_pod(raw_pod(status, role))
    assert pod.termination is not None
    assert pod.termination.describe() == "exit code 2: no model"
    assert pod.running_since is None


def test_a_pod_whose_own_container_is_not_reported_yet_has_not_started() -> None:
    sidecar = {
        "name": "istio-proxy",
        "ready": True,
        "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
    }
    assert not observe_pod(raw_pod({"phase": "Pending", "containerStatuses": [sidecar]})).started


def test_a_jobs_last_words_are_read() -> None:
    message = refusal_message("ModelNotFound", "no config.json")
    termination = observe_pod(raw_pod(ended(json.dumps(message.to_json())))).termination
    assert termination is not None
    assert termination.message == message
    assert termination.describe() == "exit code 2: no config.json"


@pytest.mark.parametrize("text", ["", "Traceback\nKeyError: 1", "{broken", '{"unknown": 1}'])
def test_the_end_of_a_log_is_no_last_words(text: str) -> None:
    termination = observe_pod(raw_pod(ended(text))).termination
    assert termination is not None
    assert termination.message is None


def test_readiness_going_and_hashes_are_seen() -> None:
    annotations = {"draftmill.dev/template-hash": "t1", "draftmill.dev/config-hash": "c1"}
    status = {"phase": "Running", "podIP": "10.0.0.7", "conditions": [{"type": "Ready", "status": "True"}]}
    pod = observe_pod(raw_pod(status, annotations=annotations, deletionTimestamp="2026-01-01T00:01:00Z"))
    assert (pod.ready, pod.deleting, pod.ip) == (True, True, "10.0.0.7")
    assert (pod.template_hash, pod.config_hash) == ("t1", "c1")


def test_an_evicted_pod_is_not_ready_whatever_its_conditions_still_say() -> None:
    ready = [{"type": "Ready", "status": "True"}]
    evicted = {"phase": "Failed", "reason": "Evicted", "message": "low on memory", "conditions": ready}
    assert observe_pod(raw_pod({"phase": "Running", "conditions": ready})).ready
    assert not observe_pod(raw_pod(evicted)).ready


def test_what_a_living_server_says_comes_before_the_end_of_another() -> None:
    gone = pod("a", ended=True, problem=Problem("Evicted", "low on memory"))
    waits = pod("b", ready=False, problem=Problem("ImagePullBackOff", "no such image"))
    assert servers(gone, waits).current_problem == waits.problem
    assert servers(gone, problem=Problem("FailedCreate", "quota")).current_problem == Problem(
        "FailedCreate", "quota"
    )
    assert servers(gone).current_problem == gone.problem


def mixed(server: dict[str, Any], worker: dict[str, Any], **status: Any) -> dict[str, Any]:
    """A worker's pod with a server in it; the kubelet's words about both containers."""
    return {
        "phase": "Pending",
        "initContainerStatuses": [{"name": "server", "ready": False, "restartCount": 0} | server],
        "containerStatuses": [{"name": "draftmill", "ready": False, "restartCount": 0} | worker],
    } | status


STARTING = {"state": waiting("PodInitializing")}
UP = {"state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}, "started": True, "ready": True}


@pytest.mark.parametrize(
    ("server", "problem"),
    [
        ({"state": {"running": {}}, "started": False}, None),
        ({"state": waiting("ErrImagePull", "not found")}, Problem("ImagePullBackOff", "not found")),
        (
            {"state": {"running": {}}, "restartCount": 1} | crashed(1, "no kernel image"),
            Problem("ServerCrashed", "exit code 1: no kernel image"),
        ),
        (
            {"state": waiting("CrashLoopBackOff"), "restartCount": 4} | crashed(1, "no kernel image"),
            Problem("CrashLoopBackOff", "exit code 1: no kernel image"),
        ),
        (
            {"state": waiting("CrashLoopBackOff"), "restartCount": 4} | crashed(137, "", "OOMKilled"),
            Problem("OOMKilled", "exit code 137 (OOMKilled)"),
        ),
    ],
)
def test_a_server_in_a_workers_pod_is_diagnosed_in_the_words_of_one_that_stands_apart(
    server: dict[str, Any], problem: Problem | None
) -> None:
    observed = observe_pod(raw_pod(mixed(server, STARTING), role="worker"))
    assert observed.problem == problem
    assert not observed.server_ready


def test_the_server_of_a_workers_pod_is_ready_when_it_has_started() -> None:
    assert observe_pod(raw_pod(mixed(UP, STARTING), role="worker")).server_ready


def test_a_pod_whose_server_is_loading_is_not_silent() -> None:
    loading = {"state": {"running": {}}, "started": False}
    observed = observe_pod(raw_pod(mixed(loading, STARTING), role="worker"))
    assert observed.started
    assert observed.running_since is None


INSTALLED = {"name": "connector", "ready": True, "state": {"terminated": {"exitCode": 0}}}


@pytest.mark.parametrize(
    ("state", "started"),
    [
        (waiting("ImagePullBackOff"), False),
        (waiting("PodInitializing"), False),
        ({"running": {}}, True),
    ],
)
def test_a_workers_pod_is_not_started_before_its_server_is(state: dict[str, Any], *, started: bool) -> None:
    status = mixed({"state": state}, STARTING)
    status["initContainerStatuses"].insert(0, INSTALLED)
    assert observe_pod(raw_pod(status, role="worker")).main_started is started


@pytest.mark.parametrize(
    ("status", "started"),
    [
        ({}, False),
        (container(waiting("ErrImagePull")), False),
        (container(waiting("CreateContainerConfigError")), False),
        (container({"running": {}}), True),
        (container({"terminated": {"exitCode": 1}}), True),
        (container(waiting("CrashLoopBackOff"), **crashed(1)), True),
        ({"phase": "Failed", "reason": "UnexpectedAdmissionError"}, False),
    ],
)
def test_a_server_of_its_own_is_started_when_its_container_has_run(
    status: dict[str, Any], *, started: bool
) -> None:
    assert observe_pod(raw_pod(status)).main_started is started


def test_a_worker_that_was_started_again_tells_how_often_and_how_it_ended() -> None:
    worker = UP | {"restartCount": 3} | crashed(137, "", "OOMKilled")
    observed = observe_pod(raw_pod(mixed(UP, worker, phase="Running"), role="worker"))
    assert observed.problem is None
    assert observed.restarts == 3
    assert observed.last_end is not None
    assert observed.last_end.exit_code == 137


def test_a_worker_that_waits_to_be_started_again_has_crashed() -> None:
    worker = {"state": waiting("CrashLoopBackOff"), "restartCount": 1} | crashed(1, "boom")
    observed = observe_pod(raw_pod(mixed(UP, worker, phase="Running"), role="worker"))
    assert observed.problem == Problem("CrashLoopBackOff", "exit code 1: boom")
