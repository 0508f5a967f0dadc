"""A cluster as tests see it: runs, the children of a run, their processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client, config

from draftmill_api import names
from tests.support.waiting import until

Manifest = dict[str, Any]
_CGROUPS = Path("/sys/fs/cgroup")
_CRDS = Path(__file__).parents[2] / "crds"


@dataclass(frozen=True)
class Kube:
    """The API of one cluster and one of its namespaces.

    Attributes:
        cgroup: Name of the cgroup below which the cluster's pods are, to find their processes.
        plural: The kind of run that it is asked about.
    """

    api: Any
    namespace: str
    cgroup: str = ""
    plural: str = "synthruns"

    def of(self, plural: str) -> Kube:
        """The same, asked about another kind of run."""
        return replace(self, plural=plural)

    @property
    def core(self) -> Any:
        return client.CoreV1Api(self.api)

    @property
    def batch(self) -> Any:
        return client.BatchV1Api(self.api)

    @property
    def apps(self) -> Any:
        return client.AppsV1Api(self.api)

    @property
    def objects(self) -> Any:
        return client.CustomObjectsApi(self.api)

    def create_run(self, manifest: Manifest) -> str:
        """Creates a run and returns its name."""
        self.objects.create_namespaced_custom_object(*self._runs, manifest)
        return str(manifest["metadata"]["name"])

    def run(self, name: str) -> Manifest | None:
        """A run, or None."""
        try:
            return dict(self.objects.get_namespaced_custom_object(*self._runs, name))
        except client.ApiException as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise

    def list_runs(self) -> list[str]:
        """Names of all runs of the namespace."""
        return [
            item["metadata"]["name"]
            for item in self.objects.list_namespaced_custom_object(*self._runs)["items"]
        ]

    def status(self, name: str) -> Manifest:
        """The status of a run; empty before the operator has seen it."""
        run = self.run(name)
        return dict((run or {}).get("status", {}))

    def patch_run(self, name: str, change: Manifest) -> None:
        """Merges a change into a run."""
        self.objects.patch_namespaced_custom_object(*self._runs, name, change)

    def delete_run(self, name: str) -> None:
        """Deletes a run; its children go by garbage collection."""
        self.objects.delete_namespaced_custom_object(*self._runs, name)

    def wait(self, name: str, holds: Callable[[Manifest], Any], within: float, what: str = "") -> Manifest:
        """Waits until something holds of a run's status, and returns that status."""

        def look() -> Manifest | None:
            status = self.status(name)
            return status if holds(status) else None

        return until(look, within, lambda: f"{what} {name}: {json.dumps(self.status(name), indent=1)}")

    def wait_phase(self, name: str, *phases: str, within: float) -> Manifest:
        """Waits until a run is in one of the phases; a Failed run ends the waiting at once."""
        status = self.wait(name, lambda s: s.get("phase") in {*phases, "Failed"}, within, f"phase {phases}")
        assert status["phase"] in phases, f"{name} failed: {json.dumps(status, indent=1)}"
        return status

    def pods(self, run: str, role: str) -> list[Any]:
        """Pods of a run that play a role and are not going away, youngest first."""
        labels = f"{names.LABEL_RUN}={run},{names.LABEL_ROLE}={role}"
        found = self.core.list_namespaced_pod(self.namespace, label_selector=labels).items
        alive = [pod for pod in found if pod.metadata.deletion_timestamp is None]
        return sorted(alive, key=lambda pod: pod.metadata.creation_timestamp, reverse=True)

    def running_pod(self, run: str, role: str, within: float = 60) -> Any:
        """The pod of a role whose container runs, waited for."""

        def look() -> Any:
            return next((pod for pod in self.pods(run, role) if is_running(pod)), None)

        return until(look, within, lambda: f"a running {role} pod of {run}: {self.status(run)}")

    def children(self, run: str) -> list[str]:
        """Everything that belongs to a run, as kind/name."""
        selector = {"label_selector": f"{names.LABEL_RUN}={run}"}
        lists = {
            "Job": self.batch.list_namespaced_job,
            "Deployment": self.apps.list_namespaced_deployment,
            "Pod": self.core.list_namespaced_pod,
            "Service": self.core.list_namespaced_service,
            "ConfigMap": self.core.list_namespaced_config_map,
        }
        return [
            f"{kind}/{item.metadata.name}"
            for kind, listed in lists.items()
            for item in listed(self.namespace, **selector).items
        ]

    def processes(self, pod: Any, container: str | None = None) -> list[int]:
        """Process ids, as this machine counts them, of what runs in a pod.

        Args:
            pod: The pod.
            container: Which of its containers and sidecars; when not told, all but the sidecars.
        """
        statuses = pod.status.container_statuses or []
        if container is not None:
            everything = [*(pod.status.init_container_statuses or []), *statuses]
            statuses = [status for status in everything if status.name == container]
        ids = [
            status.container_id.partition("://")[2]
            for status in statuses
            if status.state.running and status.container_id
        ]
        found: set[int] = set()
        for folder in _cgroups_named(self.cgroup, ids):
            found.update(int(line) for line in (folder / "cgroup.procs").read_text().split())
        return sorted(found)

    def kill(self, pod: Any, container: str | None = None) -> None:
        """Sends SIGKILL to the processes of a pod's containers, or of one of them, by their ids."""
        processes = self.processes(pod, container)
        assert processes, f"no process of pod {pod.metadata.name} found"
        for process in processes:
            with contextlib.suppress(ProcessLookupError):  # it has ended with the container's first one
                os.kill(process, signal.SIGKILL)

    @property
    def _runs(self) -> tuple[str, str, str, str]:
        return names.GROUP, names.VERSION, self.namespace, self.plural


def connect(kubeconfig: Path, namespace: str, cgroup: str = "") -> Kube:
    """The cluster of a kubeconfig."""
    settings = client.Configuration()
    config.load_kube_config(str(kubeconfig), client_configuration=settings)
    return Kube(client.ApiClient(settings), namespace, cgroup)


def install_crds(kubeconfig: Path) -> None:
    """Creates the committed CRDs in a cluster that has none, and waits until they are served."""
    for path in sorted(_CRDS.glob("*.yaml")):
        install_crd(kubeconfig, yaml.safe_load(path.read_text()))


def install_crd(kubeconfig: Path, manifest: Manifest) -> None:
    """Creates a CRD, and waits until its objects are served."""
    api: Any = client.ApiextensionsV1Api(connect(kubeconfig, "default").api)
    api.create_custom_resource_definition(manifest)
    name = manifest["metadata"]["name"]
    until(partial(_is_established, api, name), 30, f"{name} is established")


def is_running(pod: Any) -> bool:
    """Whether the containers of a pod run now."""
    statuses = pod.status.container_statuses or []
    return bool(statuses) and all(status.state.running for status in statuses)


def is_ready(pod: Any) -> bool:
    """Whether a pod's readiness probe passes."""
    conditions = pod.status.conditions or []
    return any(each.type == "Ready" and each.status == "True" for each in conditions)


def _is_established(api: Any, name: str) -> bool:
    conditions = api.read_custom_resource_definition_status(name).status.conditions or []
    return any(each.type == "Established" and each.status == "True" for each in conditions)


def _cgroups_named(root: str, ids: Iterable[str]) -> Iterable[Path]:
    wanted = set(ids)
    hierarchies = [path / root for path in (_CGROUPS, _CGROUPS / "pids") if (path / root).is_dir()]
    for hierarchy in hierarchies:
        yield from (path for path in hierarchy.rglob("*") if path.name in wanted)
