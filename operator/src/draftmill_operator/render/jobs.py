"""Job pods: plan, worker, evaluation and finish, under the restricted Pod Security profile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from draftmill_api import names as api_names
from draftmill_api.v1alpha1.shared import Volume
from draftmill_operator.render.config import config_name
from draftmill_operator.render.defaults import FrozenDefaults
from draftmill_operator.render.evaluation import SERVED
from draftmill_operator.render.failures import forgiving_rules
from draftmill_operator.render.hardware import GPU, GPU_TOLERATION
from draftmill_operator.render.metadata import Manifest, labels, metadata, sealed, selector
from draftmill_operator.render.names import child_name
from draftmill_operator.render.overrides import apply_overrides, job_overrides, merge, merge_by
from draftmill_operator.render.pods import OF_EVERY_POD
from draftmill_operator.render.ranks import ranks_environment, ranks_job_spec, with_ranks
from draftmill_operator.render.server import away_from
from draftmill_operator.render.sidecar import with_sidecar
from draftmill_operator.render.volumes import DATA, INPUT, MODELS, each_claim_once, mount, pod_volume
from draftmill_operator.render.workload import Workload
from draftmill_operator.run import Role, RunIdentity

WORKER_BACKOFF_LIMIT: Final = 6
"""Only the net for times without an operator, which starts the next attempt itself and at once."""
RESTARTS_IN_PLACE: Final = 1000
"""The net where the kubelet restarts a worker beside its server; the operator counts the vain ones."""
_STEP_GRACE_SECONDS: Final = 30
_REQUESTS: Final = {
    Role.PLAN: {"cpu": "100m", "memory": "512Mi"},
    Role.WORKER: {"cpu": "250m", "memory": "512Mi"},
    Role.EVALUATE_PLAIN: {"cpu": "100m", "memory": "512Mi"},
    Role.EVALUATE_DRAFT: {"cpu": "100m", "memory": "512Mi"},
    Role.FINISH: {"cpu": "100m", "memory": "512Mi"},
}
_TEMPORARY: Final = {"name": "tmp", "emptyDir": {}}


@dataclass(frozen=True)
class JobRequest:
    """Which job is wanted."""

    role: Role
    config_hash: str
    backoff_limit: int
    attempt: int = 0
    """Number of a worker's try, from 1; 0 for every other job."""
    worker: int = 0
    """Index of the worker."""
    on_one_node: bool = False
    """Several workers share a volume that only one node can mount."""
    excluded_nodes: tuple[str, ...] = ()
    """Nodes that its pods are kept away from."""

    @property
    def suffix(self) -> tuple[int, ...]:
        """The numbers at the end of the job's name."""
        return (self.worker, self.attempt) if self.role is Role.WORKER else ()


def render_job(run: RunIdentity, work: Workload, defaults: FrozenDefaults, request: JobRequest) -> Manifest:
    """The Job of one step; it is never edited once it exists."""
    numbered: dict[str, str] = {}
    name = child_name(run.key, request.role, *request.suffix)
    about = metadata(run, request.role, name)
    if request.role is Role.WORKER:
        numbered = {
            api_names.LABEL_WORKER: str(request.worker),
            api_names.LABEL_ATTEMPT: str(request.attempt),
        }
        about = metadata(run, request.role, name, numbered)
        about["annotations"][api_names.ANNOTATION_WORKERS_HASH] = work.workers_hash
    if request.excluded_nodes:
        about["annotations"][api_names.ANNOTATION_AVOIDED_NODES] = ",".join(sorted(request.excluded_nodes))
    return sealed(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": about,
            "spec": _job_spec(work, request)
            | {"template": _pod_template(run, work, defaults, request, numbered)},
        }
    )


def _job_spec(work: Workload, request: JobRequest) -> Manifest:
    """How the Job controller treats ended pods.

    Ranks end together. A policy of failures is not allowed where containers are restarted in their pod: there
    the operator reads the exit codes itself, and the limit, which counts every restart of worker and server,
    must not be met.
    """
    if request.role is Role.WORKER and work.ranks is not None:
        return ranks_job_spec(work.ranks)
    if request.role is Role.WORKER and work.sidecar is not None:
        return {"backoffLimit": RESTARTS_IN_PLACE, "podReplacementPolicy": "Failed"}
    return {
        "backoffLimit": request.backoff_limit,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {"rules": forgiving_rules()},
    }


def _pod_template(
    run: RunIdentity,
    work: Workload,
    defaults: FrozenDefaults,
    request: JobRequest,
    numbered: dict[str, str],
) -> Manifest:
    downloads = request.role is Role.PLAN and work.model.hugging_face is not None
    run_as = work.storage.run_as
    template: Manifest = {
        "metadata": {
            "labels": labels(run, request.role) | numbered,
            "annotations": {
                api_names.ANNOTATION_RUN_NAME: run.key.name,
                api_names.ANNOTATION_CONFIG_HASH: request.config_hash,
            },
        },
        "spec": {
            **OF_EVERY_POD,
            "restartPolicy": _restart_policy(work, request.role),
            "terminationGracePeriodSeconds": (
                work.grace_seconds if request.role is Role.WORKER else _STEP_GRACE_SECONDS
            ),
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": run_as.user,
                "runAsGroup": run_as.group,
                "fsGroup": run_as.group,
                "fsGroupChangePolicy": "OnRootMismatch",
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "imagePullSecrets": defaults.image_pull_secrets,
            "containers": [
                {
                    "name": api_names.JOB_CONTAINER,
                    "image": defaults.trainer_image if work.has_torch else defaults.job_image,
                    "imagePullPolicy": defaults.image_pull_policy.value,
                    "args": _arguments(work, request.role),
                    "env": _comfort_environment(),
                    "ports": [{"name": "http", "containerPort": api_names.JOB_HTTP_PORT}],
                    "resources": {"requests": _REQUESTS[request.role]},
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                        "readOnlyRootFilesystem": True,
                    },
                    "terminationMessagePath": api_names.TERMINATION_MESSAGE_PATH,
                    "terminationMessagePolicy": "FallbackToLogsOnError",
                    "volumeMounts": [
                        mount("config", api_names.CONFIG_MOUNT, read_only=True),
                        mount(MODELS, api_names.MODELS_MOUNT, read_only=not downloads),
                        mount(DATA, api_names.DATA_MOUNT, read_only=False),
                        mount("tmp", "/tmp", read_only=False),  # noqa: S108  an emptyDir of the pod
                    ],
                }
            ],
            "volumes": [
                {"name": "config", "configMap": {"name": config_name(run)}},
                pod_volume(MODELS, work.storage.models),
                pod_volume(DATA, work.storage.data),
                _TEMPORARY,
            ],
        },
    }
    if work.input is not None:
        template = _with_input(template, work.input)
    if request.role is Role.WORKER and work.gpus:
        template = _with_gpus(template, work.gpus)
    if request.on_one_node:
        template = template | {"spec": template["spec"] | {"affinity": _beside_each_other(run)}}
    template = _overridden(run, template, work, defaults, request)
    template = template | {"spec": each_claim_once(template["spec"])}
    if request.excluded_nodes:
        template = template | {"spec": away_from(template["spec"], request.excluded_nodes)}
    return _with_environment(template, _contract_environment(run, work, request))


def _overridden(
    run: RunIdentity, template: Manifest, work: Workload, defaults: FrozenDefaults, request: JobRequest
) -> Manifest:
    """The template with what stands beside or around the job's container, and all overrides."""
    sidecar = work.sidecar_of(request.role)
    if sidecar is not None:
        return with_sidecar(template, work, sidecar, defaults)
    if request.role is Role.WORKER and work.ranks is not None:
        return apply_overrides(with_ranks(template, run, work.ranks), merge(defaults.trainer, work.pod))
    return apply_overrides(template, job_overrides(work, defaults))


def _arguments(work: Workload, role: Role) -> list[str]:
    own: tuple[str, ...] = ()
    match role:
        case Role.WORKER:
            command, own = work.command, work.arguments
        case Role.EVALUATE_PLAIN | Role.EVALUATE_DRAFT:
            command, own = "evaluate", ("--server", SERVED[role].value)
        case _:
            command = role.value
    return [
        command,
        *("--config", api_names.CONFIG_FILE),
        *("--http-port", str(api_names.JOB_HTTP_PORT)),
        *own,
    ]


def _restart_policy(work: Workload, role: Role) -> str:
    """A worker that ends is started again beside its server, which stays loaded."""
    return "OnFailure" if role is Role.WORKER and work.sidecar is not None else "Never"


def _beside_each_other(run: RunIdentity) -> Manifest:
    """All of a run's workers on one node; the scheduler lets the first of them choose."""
    term = {
        "labelSelector": {"matchLabels": selector(run, Role.WORKER)},
        "topologyKey": "kubernetes.io/hostname",
    }
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def _comfort_environment() -> list[Manifest]:
    """What a run or the chart may want otherwise."""
    return [
        {"name": "HOME", "value": "/tmp"},  # noqa: S108  an emptyDir of the pod
        {"name": "TMPDIR", "value": "/tmp"},  # noqa: S108  an emptyDir of the pod
        {"name": "HF_HOME", "value": f"{api_names.DATA_MOUNT}/.cache/huggingface"},
    ]


def _contract_environment(run: RunIdentity, work: Workload, request: JobRequest) -> list[Manifest]:
    """What the operator and the job rely on."""
    variables: list[Manifest] = [
        {"name": api_names.TERMINATION_MESSAGE_VARIABLE, "value": api_names.TERMINATION_MESSAGE_PATH}
    ]
    if request.role is Role.WORKER:
        variables += [
            {"name": api_names.WORKER_VARIABLE, "value": f"{request.worker}/{work.workers}"},
            {"name": api_names.ATTEMPT_VARIABLE, "value": str(request.attempt)},
        ]
    if request.role is Role.WORKER and work.ranks is not None:
        variables += ranks_environment(run, work.ranks, child_name(run.key, request.role, *request.suffix))
    source = work.model.hugging_face
    if request.role is Role.PLAN and source is not None and source.token_secret_ref is not None:
        variables.append(
            {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": source.token_secret_ref.to_json()}}
        )
    return variables


def _with_input(template: Manifest, volume: Volume) -> Manifest:
    """The pod with the input's volume, which is another one than that of the run's own data."""
    spec = template["spec"]
    (container,) = spec["containers"]
    mounts = [*container["volumeMounts"], mount(INPUT, api_names.INPUT_MOUNT, read_only=True)]
    changed = {
        "containers": [container | {"volumeMounts": mounts}],
        "volumes": [*spec["volumes"], pod_volume(INPUT, volume)],
    }
    return template | {"spec": spec | changed}


def _with_gpus(template: Manifest, gpus: int) -> Manifest:
    """The pod with GPUs for its own container."""
    spec = template["spec"]
    (container,) = spec["containers"]
    resources = container["resources"] | {"limits": {GPU: str(gpus)}}
    changed = {"containers": [container | {"resources": resources}], "tolerations": [GPU_TOLERATION]}
    return template | {"spec": spec | changed}


def _with_environment(template: Manifest, variables: list[Manifest]) -> Manifest:
    (container,) = template["spec"]["containers"]
    container = container | {"env": merge_by("name", container["env"], variables)}
    return template | {"spec": template["spec"] | {"containers": [container]}}
