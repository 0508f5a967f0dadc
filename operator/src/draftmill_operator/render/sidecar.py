"""A server in the worker's pod: a native sidecar, which starts before the worker and ends after it.

The pod is a server's pod with a worker in it. Whatever concerns the pod as a whole (node, tolerations,
priority, scheduler, account) comes from the server's overrides; those of the job give it labels, annotations,
volumes and pull secrets, and everything of the worker's own container.
"""

from __future__ import annotations

from typing import Final

from draftmill_api import names as api_names
from draftmill_api.v1alpha1.pod import PodOverrides
from draftmill_operator.render.defaults import FrozenDefaults
from draftmill_operator.render.hardware import Hardware
from draftmill_operator.render.hidden_states import MEBIBYTE
from draftmill_operator.render.metadata import Manifest
from draftmill_operator.render.overrides import (
    job_overrides,
    merge,
    merge_by,
    override_container,
    override_pod,
)
from draftmill_operator.render.server import server_container, server_volumes
from draftmill_operator.render.volumes import DATA, mount
from draftmill_operator.render.workload import Sidecar, Workload

STAGING: Final = "staging"
CONNECTOR: Final = "connector"
CONNECTOR_MOUNT: Final = "/connector"
TEMPORARY: Final = "server-tmp"
"""The server's /tmp; the worker has its own."""
_PYTHON_PATH: Final = "PYTHONPATH"
_SHARED: Final = ("labels", "annotations", "volumes", "image_pull_secrets")


def with_sidecar(template: Manifest, work: Workload, sidecar: Sidecar, defaults: FrozenDefaults) -> Manifest:
    """A job's pod template with the server in it, and all overrides."""
    of_job = job_overrides(work, defaults)
    of_server = merge(defaults.server, sidecar.server.pod)
    template = template | {"spec": _mixed(template["spec"], sidecar, of_job, of_server)}
    return override_pod(override_pod(template, _of_whole_pod(of_job)), of_server)


def _mixed(pod: Manifest, sidecar: Sidecar, of_job: PodOverrides, of_server: PodOverrides) -> Manifest:
    """The pod's spec with a server before its own container."""
    server = sidecar.server
    (worker,) = pod["containers"]
    whole, of_worker = _split(pod["securityContext"])
    worker = worker | {
        "securityContext": of_worker | worker["securityContext"],
        "volumeMounts": [*worker["volumeMounts"], *_staging(sidecar)],
    }
    worker = override_container(worker, of_job)
    first = [_installer(worker)] if sidecar.installs_connector else []
    mixed = pod | {
        "securityContext": whole,
        "initContainers": [*first, _server(sidecar, of_server)],
        "containers": [worker],
        "volumes": [*pod["volumes"], *_volumes(sidecar)],
    }
    place = Hardware.of(server).pod()
    if "affinity" in pod:
        place["affinity"] = pod["affinity"] | place.get("affinity", {})
    return mixed | place


def _server(sidecar: Sidecar, overrides: PodOverrides) -> Manifest:
    container = server_container(sidecar.server, list(sidecar.command), port="server", temporary=TEMPORARY)
    mounts = [*container["volumeMounts"], *_staging(sidecar)]
    if sidecar.reads_data:
        mounts.append(mount(DATA, api_names.DATA_MOUNT, read_only=True))
    if sidecar.installs_connector:
        mounts.append(mount(CONNECTOR, CONNECTOR_MOUNT, read_only=True))
    env = [*container["env"], *({"name": name, "value": value} for name, value in sidecar.env.items())]
    # Nothing is in flight any more when it is stopped: there is nothing to drain.
    kept = {key: value for key, value in container.items() if key != "lifecycle"}
    ours = {"restartPolicy": "Always", "env": env, "volumeMounts": mounts}
    container = override_container(kept | ours, overrides)
    return _with_connector(container) if sidecar.installs_connector else container


def _installer(worker: Manifest) -> Manifest:
    """Puts the connector, which is a file of the job image, where the server's Python finds it."""
    return {
        "name": api_names.INSTALLER_CONTAINER,
        "image": worker["image"],
        "imagePullPolicy": worker["imagePullPolicy"],
        "args": ["install-connector", "--to", CONNECTOR_MOUNT],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
        "securityContext": worker["securityContext"],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [mount(CONNECTOR, CONNECTOR_MOUNT, read_only=False)],
    }


def _with_connector(container: Manifest) -> Manifest:
    """The server with the connector on its module path, before what the run has there."""
    given = next((item.get("value") for item in container["env"] if item["name"] == _PYTHON_PATH), None)
    path = ":".join(filter(None, (CONNECTOR_MOUNT, given)))
    return container | {"env": merge_by("name", container["env"], [{"name": _PYTHON_PATH, "value": path}])}


def _volumes(sidecar: Sidecar) -> list[Manifest]:
    volumes = server_volumes(sidecar.server, temporary=TEMPORARY)
    if sidecar.staging_bytes is not None:
        size = f"{sidecar.staging_bytes // MEBIBYTE}Mi"
        volumes = [{"name": STAGING, "emptyDir": {"sizeLimit": size}}, *volumes]
    return [*volumes, {"name": CONNECTOR, "emptyDir": {}}] if sidecar.installs_connector else volumes


def _staging(sidecar: Sidecar) -> list[Manifest]:
    """The mount of the folder in which states are handed over, for both containers."""
    if sidecar.staging_bytes is None:
        return []
    return [mount(STAGING, api_names.STAGING_MOUNT, read_only=False)]


def _split(security: Manifest) -> tuple[Manifest, Manifest]:
    """What of a pod's security context is for its volumes, and what for its job's container alone.

    The server runs as its image's user, for the official images are root; the volumes' group is the job's,
    which therefore may read and delete what the server writes.
    """
    whole = {key: value for key, value in security.items() if key.startswith("fsGroup")}
    return whole, {key: value for key, value in security.items() if key not in whole}


def _of_whole_pod(of_job: PodOverrides) -> PodOverrides:
    """What the job's overrides say about a pod that is the server's."""
    return PodOverrides(**{field: getattr(of_job, field) for field in _SHARED})
