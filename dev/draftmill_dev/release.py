"""Draftmill on a cluster, by Helm, with what a CPU model server needs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from draftmill_dev import environment, volumes
from draftmill_dev.errors import DevError
from draftmill_dev.images import Image
from draftmill_dev.kubectl import Kubectl
from draftmill_dev.venvs import REPOSITORY

CHART = REPOSITORY / "charts" / "draftmill"
NAME = "draftmill"
NAMESPACE = "draftmill"
ENVIRONMENT_MOUNT = "/opt/model-server"
JOBS_PACKAGES = f"/opt/draftmill/{environment.PACKAGES}"
"""Of the job image, as its Dockerfile puts them."""
_TIMEOUT = "3m"

RESTRICTED = {
    "runAsNonRoot": True,
    "runAsUser": volumes.JOB_USER,
    "runAsGroup": volumes.JOB_USER,
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def install(
    kubectl: Kubectl, values: Mapping[str, Any], *, name: str = NAME, namespace: str = NAMESPACE
) -> None:
    """Installs the chart, or upgrades it, and waits until the operator is ready.

    Args:
        kubectl: The cluster.
        values: Values of the chart.
        name: The release's name.
        namespace: The operator's namespace, made when it is not there.

    Raises:
        DevError: Helm refused, or the operator did not become ready; its last log lines are in the message.
    """
    upgrade = ["upgrade", "--install", name, str(CHART), "--namespace", namespace, "--create-namespace"]
    try:
        kubectl.run_helm(*upgrade, "--wait", "--timeout", _TIMEOUT, "--values", "-", given=json.dumps(values))
    except DevError as error:
        raise DevError(f"{error}\n{_operator_log(kubectl, namespace)}") from error


def local_images(operator: Image, jobs: Image) -> dict[str, Any]:
    """Values for images that were brought to the node, and can be pulled from nowhere."""
    return {
        "operator": {"repository": operator.repository, "tag": operator.tag},
        "job": {"repository": jobs.repository, "tag": jobs.tag},
        "trainer": {"repository": jobs.repository, "tag": jobs.tag},  # its torch is mounted
        "pullPolicy": "Never",
    }


def cpu_server() -> dict[str, Any]:
    """Pod defaults of model servers on CPU: not root, nothing to write to but /tmp."""
    return {
        "env": _variables(environment.VARIABLES),
        "securityContext": RESTRICTED,
        "resources": {"requests": {"cpu": "500m", "memory": "4Gi"}, "limits": {"memory": "8Gi"}},
    }


def mounted_environment() -> dict[str, Any]:
    """Pod defaults of a node without the large images: servers get vLLM, and trainers torch, from a claim."""
    return {"server": _mounted_server(), "trainer": _mounted_torch()}


def _mounted_server() -> dict[str, Any]:
    path = {"PATH": f"{ENVIRONMENT_MOUNT}/bin:/usr/local/bin:/usr/bin:/bin"}
    return {**cpu_server(), "env": _variables({**path, **environment.VARIABLES}), **_mount()}


def _mounted_torch() -> dict[str, Any]:
    """What the job image has itself goes before what the environment has: that brings torch, and no more."""
    path = {"PYTHONPATH": f"{JOBS_PACKAGES}:{ENVIRONMENT_MOUNT}/{environment.PACKAGES}"}
    return {"env": _variables(path), **_mount()}


def _mount() -> dict[str, Any]:
    claim = {"claimName": volumes.ENVIRONMENT, "readOnly": True}
    return {
        "volumes": [{"name": volumes.ENVIRONMENT, "persistentVolumeClaim": claim}],
        "volumeMounts": [{"name": volumes.ENVIRONMENT, "mountPath": ENVIRONMENT_MOUNT, "readOnly": True}],
    }


def _variables(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]


def _operator_log(kubectl: Kubectl, namespace: str) -> str:
    selector = "app.kubernetes.io/component=operator"
    try:
        pods = kubectl.run(
            "get", "pods", "--namespace", namespace, "--selector", selector, "--output", "wide"
        )
        log = kubectl.run("logs", "--namespace", namespace, "--selector", selector, "--tail", "20")
    except DevError as error:
        return f"The operator's log could not be read: {error}"
    return f"{pods}\nThe operator's last lines:\n{log}"
