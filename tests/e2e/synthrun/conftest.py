"""A model server that is no part of any run, for runs that are given one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from draftmill_dev import model, release
from tests.support import kube
from tests.support.bed import Bed
from tests.support.waiting import until


@pytest.fixture(scope="module")
def vllm(bed: Bed) -> Iterator[str]:
    """A model server that is no part of any run, and its address."""
    pod = _model_server(bed)
    core, namespace, name = bed.kube.core, bed.kube.namespace, pod["metadata"]["name"]
    core.create_namespaced_pod(namespace, pod)
    try:
        found = until(
            lambda: _if_ready(bed, name), 300, lambda: str(core.read_namespaced_pod(name, namespace))
        )
        yield f"http://{found.status.pod_ip}:8000"
    finally:
        core.delete_namespaced_pod(name, namespace, grace_period_seconds=0)


def _if_ready(bed: Bed, name: str) -> Any:
    pod = bed.kube.core.read_namespaced_pod(name, bed.kube.namespace)
    return pod if kube.is_ready(pod) else None


def _model_server(bed: Bed) -> dict[str, Any]:
    defaults = release.mounted_environment()["server"]
    folders = {"HOME": "/tmp", "TMPDIR": "/tmp"}
    command = ["vllm", "serve", f"/models/{model.NAME}", "--served-model-name", model.NAME]
    command += ["--port", "8000", "--max-model-len", "2048", *bed.server()["extraArgs"]]
    container = {
        **defaults,
        "name": "server",
        "image": bed.server_image,
        "command": command,
        "env": [{"name": name, "value": value} for name, value in folders.items()] + defaults["env"],
        "readinessProbe": {"httpGet": {"path": "/health", "port": 8000}, "periodSeconds": 2},
        "volumeMounts": [
            {"name": "models", "mountPath": "/models", "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "shm", "mountPath": "/dev/shm"},
            *defaults["volumeMounts"],
        ],
    }
    mounted = [
        {"name": "models", "persistentVolumeClaim": {"claimName": "models", "readOnly": True}},
        {"name": "tmp", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
        *container.pop("volumes"),
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "model-server"},
        "spec": {"enableServiceLinks": False, "containers": [container], "volumes": mounted},
    }
