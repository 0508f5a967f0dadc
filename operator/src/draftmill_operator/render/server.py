"""Server pods: one function renders the container, a Deployment and a headless Service stand around it."""

from __future__ import annotations

import math
from typing import Final

from draftmill_api import names as api_names
from draftmill_api.base import seconds
from draftmill_api.v1alpha1.shared import Model, Server, Volume
from draftmill_operator.render import engines
from draftmill_operator.render.defaults import FrozenDefaults
from draftmill_operator.render.hardware import SHARED_MEMORY_MOUNT, Hardware
from draftmill_operator.render.metadata import (
    Manifest,
    content_hash,
    labels,
    metadata,
    sealed,
    selector,
)
from draftmill_operator.render.names import child_name
from draftmill_operator.render.overrides import apply_overrides, merge
from draftmill_operator.render.pods import OF_EVERY_POD
from draftmill_operator.render.volumes import MODELS, each_claim_once, model_path, mount, pod_volume
from draftmill_operator.render.workload import Workload
from draftmill_operator.run import Role, RunIdentity

STARTUP_PERIOD: Final = 10
"""Seconds between two looks at a loading server."""
DRAIN_SECONDS: Final = 5
"""Time in which a stopping server is taken out of the job config while it still answers."""
GRACE_SECONDS: Final = 60


def server_name(run: RunIdentity) -> str:
    """Name of the servers' Deployment and Service."""
    return child_name(run.key, Role.SERVER)


def render_server(run: RunIdentity, server: Server, template: Manifest, replicas: int) -> Manifest:
    """The Deployment of the servers.

    The strategy is Recreate: a rolling update of a pod that holds all GPUs of a node never finishes.
    """
    return sealed(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata(run, Role.SERVER, server_name(run)),
            "spec": {
                "replicas": replicas,
                "revisionHistoryLimit": 1,
                "progressDeadlineSeconds": math.ceil(seconds(server.startup_timeout)) + 600,
                "strategy": {"type": "Recreate"},
                "selector": {"matchLabels": selector(run, Role.SERVER)},
                "template": template,
            },
        }
    )


def render_service(run: RunIdentity) -> Manifest:
    """The headless Service in front of the servers: a name for people."""
    return sealed(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata(run, Role.SERVER, server_name(run)),
            "spec": {
                "clusterIP": "None",
                "selector": selector(run, Role.SERVER),
                "ports": [{"name": "http", "port": api_names.SERVER_PORT, "targetPort": "http"}],
            },
        }
    )


def run_template(
    run: RunIdentity,
    work: Workload,
    server: Server,
    defaults: FrozenDefaults,
    excluded_nodes: tuple[str, ...],
) -> Manifest:
    """The pod template of a run's servers, kept away from some nodes, annotated with its own hash."""
    template = server_template(run, work.model, work.storage.models, server, defaults)
    if not excluded_nodes:
        return template
    return _hashed(template | {"spec": away_from(template["spec"], excluded_nodes)})


def server_template(
    run: RunIdentity, model: Model, models: Volume, server: Server, defaults: FrozenDefaults
) -> Manifest:
    """The pod template of a server, annotated with its own hash."""
    template: Manifest = {
        "metadata": {
            "labels": labels(run, Role.SERVER),
            "annotations": {api_names.ANNOTATION_RUN_NAME: run.key.name},
        },
        "spec": {
            **OF_EVERY_POD,
            "terminationGracePeriodSeconds": GRACE_SECONDS,
            "containers": [
                server_container(server, engines.command(model, model_path(model), server))
                | {"lifecycle": {"preStop": {"sleep": {"seconds": DRAIN_SECONDS}}}}
            ],
            "volumes": [pod_volume(MODELS, models), *server_volumes(server)],
        }
        | Hardware.of(server).pod(),
    }
    template = apply_overrides(template, merge(defaults.server, server.pod))
    return _hashed(template | {"spec": each_claim_once(template["spec"])})


def _hashed(template: Manifest) -> Manifest:
    annotations = template["metadata"]["annotations"] | {
        api_names.ANNOTATION_TEMPLATE_HASH: content_hash(template)
    }
    return template | {"metadata": template["metadata"] | {"annotations": annotations}}


def away_from(pod: Manifest, nodes: tuple[str, ...]) -> Manifest:
    """The pod's spec with its node affinity narrowed: every term of it, for they are alternatives."""
    elsewhere = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": sorted(nodes)}
    affinity = pod.get("affinity") or {}
    node_affinity = affinity.get("nodeAffinity") or {}
    required = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = [
        term | {"matchExpressions": [*term.get("matchExpressions", []), elsewhere]}
        for term in required.get("nodeSelectorTerms") or [{}]
    ]
    narrowed = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return pod | {"affinity": affinity | {"nodeAffinity": node_affinity | narrowed}}


def template_hash(template: Manifest) -> str:
    """The hash that pods of this template carry."""
    annotations: dict[str, str] = template["metadata"]["annotations"]
    return annotations[api_names.ANNOTATION_TEMPLATE_HASH]


def server_container(
    server: Server, command: list[str], *, port: str = "http", temporary: str = "tmp"
) -> Manifest:
    """The container of a server, in whatever pod it stands: there its port and its /tmp have these names."""
    return {
        "name": api_names.SERVER_CONTAINER,
        "image": server.image,
        "command": command,
        "env": [
            {"name": "HOME", "value": "/tmp"},  # noqa: S108  an emptyDir of the pod
            {"name": "TMPDIR", "value": "/tmp"},  # noqa: S108  an emptyDir of the pod
            {"name": "HF_HUB_OFFLINE", "value": "1"},
            {"name": "VLLM_NO_USAGE_STATS", "value": "1"},
        ],
        "ports": [{"name": port, "containerPort": api_names.SERVER_PORT}],
        "resources": Hardware.of(server).resources(),
        "startupProbe": _probe(
            port,
            period=STARTUP_PERIOD,
            timeout=5,
            failures=math.ceil(seconds(server.startup_timeout) / STARTUP_PERIOD),
        ),
        "readinessProbe": _probe(port, period=5, timeout=5, failures=3),
        "livenessProbe": _probe(port, period=20, timeout=15, failures=15),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            mount(MODELS, api_names.MODELS_MOUNT, read_only=True),
            SHARED_MEMORY_MOUNT,
            mount(temporary, "/tmp", read_only=False),  # noqa: S108  an emptyDir of the pod
        ],
    }


def server_volumes(server: Server, *, temporary: str = "tmp") -> list[Manifest]:
    """The volumes of a server's container but for the models."""
    return [
        Hardware.of(server).volume(),
        {"name": temporary, "emptyDir": {}},
    ]


def _probe(port: str, *, period: int, timeout: int, failures: int) -> Manifest:
    return {
        "httpGet": {"path": "/health", "port": port},
        "periodSeconds": period,
        "timeoutSeconds": timeout,
        "failureThreshold": failures,
    }
