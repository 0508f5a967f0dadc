"""From the cache to what one pass sees of one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from pydantic import ValidationError

from draftmill_api import names as api_names
from draftmill_api.progress import Progress
from draftmill_operator.observe.answers import Answers
from draftmill_operator.observe.ownership import is_of_deployment, was_of_job
from draftmill_operator.observe.pods import observe_pod, parse_time
from draftmill_operator.observe.store import Kind, Store, controller_uid
from draftmill_operator.observe.types import (
    JobState,
    Observed,
    ObservedJob,
    ObservedPod,
    ObservedServers,
    Problem,
)
from draftmill_operator.render.config import CONFIG_KEY
from draftmill_operator.render.defaults import DEFAULTS_KEY, FrozenDefaults
from draftmill_operator.run import EVALUATIONS, NotUnderstoodError, Role, RunIdentity, first_fault

CHILD_NOT_UNDERSTOOD: Final = "ChildNotUnderstood"
QUEUED: Final = "Queued"


def observe(run: RunIdentity, store: Store, answers: Answers, findings: Mapping[str, Problem]) -> Observed:
    """What the run's children are doing.

    `answers` holds what pods said last, `findings` what events say of objects that do not explain
    themselves, by the object's uid.

    Raises:
        NotUnderstoodError: a child, the frozen defaults or a Job, was changed by someone else.
    """
    pods = list(store.children(Kind.POD, run.uid))
    jobs = [
        _job(raw, store, pods, findings) for raw in _owned(store, Kind.JOB, run) if _role(raw) in _JOB_ROLES
    ]
    by_role = {role: [job for role_of_job, job in jobs if role_of_job is role] for role in _JOB_ROLES}
    workers = tuple(sorted(by_role[Role.WORKER], key=lambda job: job.attempt))
    evaluations = {role: by_role[role][0] for role in EVALUATIONS if by_role[role]}
    strays = [raw for raw in pods if _is_stray(run, raw, [job for _, job in jobs])]
    return Observed(
        defaults=_defaults(run, store),
        config=_config(run, store),
        plan=next(iter(by_role[Role.PLAN]), None),
        finish=next(iter(by_role[Role.FINISH]), None),
        evaluations=evaluations,
        said_of_evaluation=_said_of_evaluation(evaluations, answers),
        workers=workers,
        stray_worker_pods=tuple(_pod(raw, findings) for raw in strays if _role(raw) is Role.WORKER),
        stray_step_pods=tuple(_pod(raw, findings) for raw in strays if _role(raw) is not Role.WORKER),
        servers=_servers(run, store, pods, findings),
        progress=_current_progress(workers, answers),
        known=answers.of_run(run.uid),
    )


_JOB_ROLES = {Role.PLAN, Role.WORKER, *EVALUATIONS, Role.FINISH}
_ROLES = {role.value: role for role in Role}


def _owned(store: Store, kind: Kind, run: RunIdentity) -> list[dict[str, Any]]:
    return [raw for raw in store.children(kind, run.uid) if controller_uid(raw) == run.uid]


def _role(raw: dict[str, Any]) -> Role | None:
    value = raw["metadata"]["labels"].get(api_names.LABEL_ROLE, "")
    return _ROLES.get(value)


def _job(
    raw: dict[str, Any], store: Store, pods: list[dict[str, Any]], findings: Mapping[str, Problem]
) -> tuple[Role | None, ObservedJob]:
    metadata, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    annotations = metadata.get("annotations") or {}
    avoided: str = annotations.get(api_names.ANNOTATION_AVOIDED_NODES, "")
    conditions = {item["type"]: item for item in status.get("conditions") or [] if item["status"] == "True"}
    failed = conditions.get("Failed") or conditions.get("FailureTarget")
    uncounted = status.get("uncountedTerminatedPods") or {}
    suspended = bool(spec.get("suspend")) and "deletionTimestamp" not in metadata
    was_held = any(item["type"] == "Suspended" for item in status.get("conditions") or [])
    state = JobState.ACTIVE
    if "Complete" in conditions or "SuccessCriteriaMet" in conditions:
        state = JobState.SUCCEEDED
    elif failed is not None:
        state = JobState.FAILED
    return _role(raw), ObservedJob(
        name=metadata["name"],
        uid=metadata["uid"],
        attempt=_number(raw, api_names.LABEL_ATTEMPT),
        state=state,
        deleting="deletionTimestamp" in metadata,
        created=parse_time(metadata["creationTimestamp"]),
        failed_pods=status.get("failed", 0) + len(uncounted.get("failed") or ()),
        lost_pod=store.has_lost_a_pod(metadata["uid"]) and not was_held,
        verdict=Problem(failed.get("reason", ""), failed.get("message", "")) if failed else None,
        pods=tuple(_pod(pod, findings) for pod in pods if controller_uid(pod) == metadata["uid"]),
        problem=_held(metadata["name"]) if suspended else findings.get(metadata["uid"]),
        worker=_number(raw, api_names.LABEL_WORKER),
        workers_hash=annotations.get(api_names.ANNOTATION_WORKERS_HASH, ""),
        succeeded_pods=status.get("succeeded", 0) + len(uncounted.get("succeeded") or ()),
        together=spec.get("completionMode") == "Indexed",
        avoided_nodes=tuple(node for node in avoided.split(",") if node),
        suspended=suspended,
    )


def _held(name: str) -> Problem:
    return Problem(
        QUEUED,
        f"Job {name} is suspended by a queue, or by hand: it goes on when its spec.suspend is false again",
    )


def _number(raw: dict[str, Any], label: str) -> int:
    value: str = raw["metadata"]["labels"].get(label, "0")
    if not (value.isascii() and value.isdecimal()):
        raise NotUnderstoodError(
            CHILD_NOT_UNDERSTOOD,
            f"Job {raw['metadata']['name']} has the label {label}={value}, "
            "which is no number; set it right or delete the Job",
        )
    return int(value)


def _pod(raw: dict[str, Any], findings: Mapping[str, Problem]) -> ObservedPod:
    pod = observe_pod(raw)
    return replace(pod, problem=findings.get(pod.uid, pod.problem))


def _is_stray(run: RunIdentity, pod: dict[str, Any], jobs: list[ObservedJob]) -> bool:
    """Whether a Job of the run made this pod and is gone."""
    role = _role(pod)
    if role not in _JOB_ROLES or not was_of_job(run.key, role, pod):
        return False
    return controller_uid(pod) not in {job.uid for job in jobs}


def _servers(
    run: RunIdentity, store: Store, pods: list[dict[str, Any]], findings: Mapping[str, Problem]
) -> ObservedServers:
    made = (raw for raw in pods if _role(raw) is Role.SERVER and is_of_deployment(run.key, raw))
    server_pods = tuple(_pod(raw, findings) for raw in made)
    deployment = next(iter(_owned(store, Kind.DEPLOYMENT, run)), None)
    if deployment is None:
        return ObservedServers(exists=False, pods=server_pods)
    conditions = (deployment.get("status") or {}).get("conditions") or []
    refused = next(
        (item for item in conditions if item["type"] == "ReplicaFailure" and item["status"] == "True"), None
    )
    return ObservedServers(
        exists=True,
        deleting="deletionTimestamp" in deployment["metadata"],
        pods=server_pods,
        problem=Problem(refused.get("reason", ""), refused.get("message", "")) if refused else None,
    )


def _defaults(run: RunIdentity, store: Store) -> FrozenDefaults | None:
    raw = _config_map(run, store, Role.DEFAULTS)
    if raw is None:
        return None
    where = f"ConfigMap {raw['metadata']['name']}"
    text = (raw.get("data") or {}).get(DEFAULTS_KEY, "")
    try:
        return FrozenDefaults.model_validate_json(text)
    except ValidationError as error:
        raise NotUnderstoodError(
            CHILD_NOT_UNDERSTOOD,
            f"{where} does not hold the defaults that were frozen into the run: {first_fault(error)}; "
            "delete it, and the operator's own are taken",
        ) from error


def _config(run: RunIdentity, store: Store) -> str | None:
    raw = _config_map(run, store, Role.CONFIG)
    return (raw.get("data") or {}).get(CONFIG_KEY, "") if raw is not None else None


def _config_map(run: RunIdentity, store: Store, role: Role) -> dict[str, Any] | None:
    maps = _owned(store, Kind.CONFIG_MAP, run)
    return next((raw for raw in maps if _role(raw) is role), None)


def _current_progress(workers: tuple[ObservedJob, ...], answers: Answers) -> dict[int, Progress]:
    """What each worker's youngest pod said last; `workers` are in the order of their attempts."""
    youngest = {job.worker: job for job in workers}
    current = {}
    for index, job in youngest.items():
        answer = answers.of_pod(job.youngest_pod.uid) if job.youngest_pod is not None else None
        if answer is not None:
            current[index] = answer
    return current


def _said_of_evaluation(jobs: Mapping[Role, ObservedJob], answers: Answers) -> dict[Role, str]:
    """What the youngest pod of each step said last."""
    pods = {role: job.youngest_pod for role, job in jobs.items()}
    said = {role: answers.of_pod(pod.uid) for role, pod in pods.items() if pod is not None}
    return {role: answer.message for role, answer in said.items() if answer is not None}
