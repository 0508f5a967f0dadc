"""A node with Draftmill on it, as `make demo` would install it, and a namespace for the tests' runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from draftmill_dev import environment, images, model, release, volumes
from draftmill_dev.cluster import Cluster
from draftmill_dev.kubectl import Kubectl
from tests.support import kube
from tests.support.bed import Bed
from tests.support.waiting import until

_NAMESPACE = "draftmill-runs"


def pytest_collection_finish(session: pytest.Session) -> None:
    """Builds images, model server and model before any test's time starts to count."""
    wanted = any("bed" in getattr(item, "fixturenames", ()) for item in session.items)
    if wanted and not session.config.option.collectonly:
        environment.build()
        model.build()
        for name in images.NAMES:
            images.build(name)


@pytest.fixture(scope="session")
def bed(cluster: Cluster) -> Bed:
    """Draftmill, installed by its chart, and a namespace with volumes."""
    built = {name: images.build(name) for name in images.NAMES}
    for image in built.values():
        images.load(cluster, image)
    kubectl = Kubectl(cluster.programs.kubectl, cluster.programs.helm, cluster.kubeconfig, _NAMESPACE)
    kubectl.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE}}])
    folders = volumes.lay_out(cluster.volumes, model.build(), environment.build())
    volumes.create_claims(kubectl, folders)
    values = {
        "images": release.local_images(built[images.OPERATOR], built[images.JOBS]),
        "podDefaults": {"server": release.mounted_environment()},
        "hostPathPrefixes": ["/srv/allowed"],
    }
    release.install(kubectl, values)
    return Bed(
        kube=kube.connect(cluster.kubeconfig, _NAMESPACE, cluster.cgroup),
        system=kube.connect(cluster.kubeconfig, release.NAMESPACE, cluster.cgroup),
        data=cluster.volumes / volumes.DATA,
        server_image=built[images.SERVER].reference,
        audit_log=cluster.audit_log,
        upgrade=lambda more: release.install(kubectl, merged(values, more)),
    )


def merged(values: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Helm values with others over them."""
    both = {
        name: merged(values[name], more[name])
        for name in values.keys() & more.keys()
        if isinstance(more[name], dict)
    }
    return values | more | both


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
    defaults = release.mounted_environment()
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
