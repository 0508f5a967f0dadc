"""The images on a real node, under the restricted Pod Security profile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client, config

from draftmill_dev import images, release
from draftmill_dev.cluster import Cluster
from tests.support.waiting import until

pytestmark = pytest.mark.e2e

_NAMESPACE = "draftmill-images"
_WHO = "import os; print(os.getuid(), os.getgid(), os.access('/', os.W_OK), os.access('/tmp', os.W_OK))"


@pytest.fixture(scope="module")
def core(cluster: Cluster) -> Iterator[Any]:
    api: Any = client.CoreV1Api(config.new_client_from_config(str(cluster.kubeconfig)))
    enforce = {"pod-security.kubernetes.io/enforce": "restricted"}
    api.create_namespace({"metadata": {"name": _NAMESPACE, "labels": enforce}})
    yield api
    api.delete_namespace(_NAMESPACE)


@pytest.mark.parametrize(
    ("name", "command", "output"),
    [
        (images.OPERATOR, ["python", "-P", "-c", _WHO], "65532 65532 False True\n"),
        (images.JOBS, ["python", "-P", "-c", _WHO], "65532 65532 False True\n"),
        (images.SERVER, ["python3", "-c", _WHO], "65532 65532 False True\n"),
        (
            images.OPERATOR,
            ["python", "-P", "-c", "import operator; print(operator.__file__)"],
            "operator.py\n",
        ),
    ],
    ids=["operator", "jobs", "server", "operator keeps the standard library's module"],
)
def test_an_image_runs_under_the_restricted_profile(
    cluster: Cluster, core: Any, name: str, command: list[str], output: str
) -> None:
    image = images.build(name)
    images.load(cluster, image)

    assert _output(core, image.reference, command).endswith(output)


def test_the_jobs_image_is_the_draftmill_command(cluster: Cluster, core: Any) -> None:
    image = images.build(images.JOBS)
    images.load(cluster, image)

    assert _output(core, image.reference, None, ["--help"]).startswith("usage: draftmill")


def test_an_image_is_imported_once(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    image = images.build(images.OPERATOR)
    images.load(cluster, image)
    imported: list[object] = []
    monkeypatch.setattr(Cluster, "import_image", lambda _, archive: imported.append(archive))

    images.load(cluster, image)

    assert imported == []


def _output(core: Any, image: str, command: list[str] | None, arguments: list[str] | None = None) -> str:
    """What a pod that has ended printed."""
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "Never",
        "command": command,
        "args": arguments,
        "securityContext": release.RESTRICTED,
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    pod = core.create_namespaced_pod(
        _NAMESPACE,
        {
            "metadata": {"generateName": "image-"},
            "spec": {
                "restartPolicy": "Never",
                "containers": [container],
                "volumes": [{"name": "tmp", "emptyDir": {}}],
            },
        },
    )
    name = pod.metadata.name

    def phase() -> str:
        return str(core.read_namespaced_pod(name, _NAMESPACE).status.phase)

    until(lambda: phase() in ("Succeeded", "Failed"), 120, lambda: f"the end of {name}, which is {phase()}")
    return str(core.read_namespaced_pod_log(name, _NAMESPACE))
