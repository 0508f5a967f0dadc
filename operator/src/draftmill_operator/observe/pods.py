"""What a pod's status says: is it ready, what is wrong with it, how did its container end."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import ValidationError

from draftmill_api import names as api_names
from draftmill_api.progress import TerminationMessage
from draftmill_operator.observe.pulls import pull_problem
from draftmill_operator.observe.types import ObservedPod, Problem, Termination

_ENDED_PHASES = {"Succeeded", "Failed"}
_PATIENT_REASONS = {"ContainerCreating", "PodInitializing"}
UNSCHEDULABLE = "Unschedulable"
"""The scheduler's word where no node fits."""
CRASH_LOOP = "CrashLoopBackOff"
CRASHED = {api_names.SERVER_CONTAINER: "ServerCrashed", api_names.JOB_CONTAINER: "WorkerCrashed"}
"""The container ended and was started again at once."""
_RESTARTS_IN_LOOP = 2
"""The kubelet delays every restart but the first, and then says CrashLoopBackOff until it starts the next."""


def observe_pod(raw: dict[str, Any]) -> ObservedPod:
    """One pod from its JSON; only what was rendered counts, not a container that the cluster injected."""
    metadata, status = raw["metadata"], raw.get("status", {})
    annotations = metadata.get("annotations") or {}
    container, first = _own_container(metadata, status), _rendered_init_containers(status)
    server = _server(first) or {}
    state = container.get("state") or {}
    running, terminated = state.get("running") or {}, state.get("terminated") or {}
    ended = status.get("phase") in _ENDED_PHASES
    return ObservedPod(
        name=metadata["name"],
        uid=metadata["uid"],
        ip=status.get("podIP", ""),
        created=parse_time(metadata["creationTimestamp"]),
        ended=ended,
        ready=not ended and _condition(status, "Ready").get("status") == "True",
        deleting="deletionTimestamp" in metadata,
        disrupted=_condition(status, "DisruptionTarget").get("status") == "True",
        started=any(_has_run(each) for each in (container, *first)),
        main_started=_has_run(_main_container(container, first)),
        running_since=parse_time(running["startedAt"]) if "startedAt" in running else None,
        template_hash=annotations.get(api_names.ANNOTATION_TEMPLATE_HASH, ""),
        config_hash=annotations.get(api_names.ANNOTATION_CONFIG_HASH, ""),
        problem=_problem(status, (*first, container)),
        termination=_termination(terminated),
        node=(raw.get("spec") or {}).get("nodeName", ""),
        rejected=_is_rejected(status),
        cut_off=(
            _condition(status, "ContainersReady").get("status") == "True"
            and _condition(status, "Ready").get("status") == "False"
        ),
        server_ready=bool(server.get("started", False)),
        server_restarts=server.get("restartCount", 0),
        restarts=container.get("restartCount", 0),
        last_end=_termination((container.get("lastState") or {}).get("terminated")),
        removal_due=parse_time(metadata["deletionTimestamp"]) if "deletionTimestamp" in metadata else None,
        rank=rank_of(raw),
        finished=parse_time(terminated["finishedAt"]) if terminated.get("finishedAt") else None,
    )


def rank_of(raw: dict[str, Any]) -> int:
    """The pod's number among those that work as one; 0 where it works alone."""
    return int((raw["metadata"].get("annotations") or {}).get(api_names.ANNOTATION_RANK, "0"))


def parse_time(text: str) -> datetime:
    """A time as Kubernetes writes it."""
    return datetime.fromisoformat(text)


def _own_container(metadata: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
    """The status of the container that was rendered; empty while the kubelet has not reported it."""
    name = api_names.container_of((metadata.get("labels") or {}).get(api_names.LABEL_ROLE))
    containers = status.get("containerStatuses") or []
    return next((container for container in containers if container["name"] == name), {})


def _rendered_init_containers(status: dict[str, Any]) -> list[dict[str, Any]]:
    """The statuses of what starts before the pod's own container: its server, and what that needs."""
    rendered = {api_names.INSTALLER_CONTAINER, api_names.SERVER_CONTAINER}
    return [each for each in status.get("initContainerStatuses") or [] if each["name"] in rendered]


def _main_container(own: dict[str, Any], first: list[dict[str, Any]]) -> dict[str, Any]:
    """The container that the pod holds its GPUs for: the server in it, or its own where there is none."""
    return _server(first) or own


def _server(first: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The status of the server that stands in the pod, once the kubelet has reported it."""
    return next((each for each in first if each["name"] == api_names.SERVER_CONTAINER), None)


def _has_run(container: dict[str, Any]) -> bool:
    state = container.get("state") or {}
    return bool("running" in state or "terminated" in state or container.get("lastState"))


def _condition(status: dict[str, Any], kind: str) -> dict[str, Any]:
    conditions = status.get("conditions") or []
    return next((condition for condition in conditions if condition["type"] == kind), {})


def _is_rejected(status: dict[str, Any]) -> bool:
    """Whether the kubelet refused the pod before any container: UnexpectedAdmissionError, OutOfcpu, ..."""
    states = [container.get("state") or {} for container in status.get("containerStatuses") or []]
    return (
        status.get("phase") == "Failed"
        and bool(status.get("reason"))
        and not any(state.keys() & {"running", "terminated"} for state in states)
        and _condition(status, "DisruptionTarget").get("status") != "True"
    )


def _problem(status: dict[str, Any], containers: tuple[dict[str, Any], ...]) -> Problem | None:
    """What is wrong with the pod, or with the first of its containers that is not well."""
    scheduled = _condition(status, "PodScheduled")
    if scheduled.get("status") == "False":
        return Problem(scheduled.get("reason", UNSCHEDULABLE), scheduled.get("message", ""))
    if status.get("phase") == "Failed" and status.get("reason"):
        return Problem(status["reason"], status.get("message", ""))
    return next((found for each in containers if (found := _problem_of(each)) is not None), None)


def _problem_of(container: dict[str, Any]) -> Problem | None:
    waiting = (container.get("state") or {}).get("waiting") or {}
    crash = _termination((container.get("lastState") or {}).get("terminated"))
    if crash is not None and not container.get("ready"):
        return Problem(_crash_reason(crash, container), crash.describe())
    reason = waiting.get("reason", "")
    if not reason or reason in _PATIENT_REASONS:
        return None
    return pull_problem(container) or Problem(reason, waiting.get("message", ""))


def _crash_reason(crash: Termination, container: dict[str, Any]) -> str:
    """One word for a crash; it does not change to and fro with the tries of a loop."""
    if crash.reason == "OOMKilled":
        return crash.reason
    waiting = (container.get("state") or {}).get("waiting") or {}
    in_loop = waiting.get("reason") == CRASH_LOOP or container.get("restartCount", 0) >= _RESTARTS_IN_LOOP
    return CRASH_LOOP if in_loop else CRASHED.get(container["name"], CRASH_LOOP)


def _termination(terminated: dict[str, Any] | None) -> Termination | None:
    if not terminated:
        return None
    text = terminated.get("message", "")
    return Termination(
        exit_code=terminated["exitCode"],
        reason=terminated.get("reason", ""),
        text=text,
        message=_last_words(text),
    )


def _last_words(text: str) -> TerminationMessage | None:
    """The job's own message; a log's end, which the kubelet puts in its place, is none."""
    if not text.startswith("{"):
        return None
    try:
        return TerminationMessage.model_validate_json(text)
    except ValidationError:
        return None
