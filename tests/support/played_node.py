"""A node and its kubelet, played by a test: it beats, takes pods, lets them go, or refuses them."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from kubernetes import client

from draftmill_api import names
from draftmill_operator.capacity import PRODUCT
from draftmill_operator.render.hardware import GPU
from tests.support.kube import Kube
from tests.support.waiting import until

HOSTNAME = "kubernetes.io/hostname"
_LEASES = "kube-node-lease"
_LOOK = 0.1
_LOOKS_A_BEAT = 100
_LOOKS_A_REJECTION = 5


class PlayedNode:
    """A Node that is Ready, as long as the test says nothing else.

    Attributes:
        lets_go: Whether pods that are being deleted go; a kubelet that is not heard never confirms it.
        refuses: Which pods it refuses, while there is a reason for it: those that have a server.
        rejects: The reason, as `reason, message`; None when it refuses no pod.
        rejected: Number of pods that it has refused.
    """

    def __init__(self, kube: Kube, name: str) -> None:
        self.name = name
        self.lets_go = True
        self.refuses: Callable[[Any], bool] = has_server
        self.rejects: tuple[str, str] | None = None
        self.rejected = 0
        self._kube = kube
        self._stopped = threading.Event()

    def take(self, pod: Any) -> None:
        """The scheduler's part: the pod is bound to this node."""
        target = client.V1ObjectReference(kind="Node", api_version="v1", name=self.name)
        binding = client.V1Binding(metadata=client.V1ObjectMeta(name=pod.metadata.name), target=target)
        self._kube.core.create_namespaced_binding(self._kube.namespace, binding, _preload_content=False)

    def let_go(self, pod: Any) -> None:
        """The pod's containers have stopped, and it is gone."""
        with _unless_gone():
            if pod.status.phase in {"Pending", "Running"}:
                self._set_status(pod, phase="Failed")
            self._kube.core.delete_namespaced_pod(
                pod.metadata.name, self._kube.namespace, grace_period_seconds=0
            )

    def fall_silent(self, message: str) -> None:
        """What the control plane says when the kubelet is not heard any more; its pods are not ready then."""
        self.lets_go = False
        self.set_ready("Unknown", message)
        not_ready = [{"type": "Ready", "status": "False", "lastTransitionTime": _now()}]
        for pod in self.pods():
            self._set_status(pod, conditions=not_ready)

    def set_ready(self, status: str, message: str) -> None:
        """The node's condition Ready."""
        condition = {
            "type": "Ready",
            "status": status,
            "reason": "KubeletReady" if status == "True" else "NodeStatusUnknown",
            "message": message,
            "lastHeartbeatTime": _now(),
            "lastTransitionTime": _now(),
        }
        self._kube.core.patch_node_status(self.name, {"status": {"conditions": [condition]}})

    def pods(self) -> list[Any]:
        """The pods that are placed on it."""
        fields = f"spec.nodeName={self.name}"
        return list(self._kube.core.list_namespaced_pod(self._kube.namespace, field_selector=fields).items)

    def play(self) -> None:
        """The kubelet's loop; the thread's body."""
        for look in itertools.count(1):
            if self._stopped.wait(_LOOK):
                return
            if look % _LOOKS_A_BEAT == 0:
                self.beat()
            if self.rejects is not None and look % _LOOKS_A_REJECTION == 0:
                self._reject(*self.rejects)
            for pod in self.pods() if self.lets_go else []:
                if pod.metadata.deletion_timestamp is not None:
                    self.let_go(pod)

    def stop(self) -> None:
        """End `play`."""
        self._stopped.set()

    def beat(self) -> None:
        """Renew the node's lease, which is what keeps the control plane from calling it lost."""
        lease: Any = {
            "metadata": {"name": self.name, "namespace": _LEASES},
            "spec": {"holderIdentity": self.name, "leaseDurationSeconds": 40, "renewTime": _precise_now()},
        }
        leases = client.CoordinationV1Api(self._kube.api)
        try:
            leases.patch_namespaced_lease(self.name, _LEASES, lease)
        except client.ApiException as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            leases.create_namespaced_lease(_LEASES, lease)

    def _reject(self, reason: str, message: str) -> None:
        for pod in self._kube.core.list_namespaced_pod(self._kube.namespace).items:
            is_free = pod.spec.node_name is None and self.name not in excluded_nodes(pod.spec)
            if is_free and self.refuses(pod):
                with _unless_gone():
                    self.take(pod)
                    self._set_status(pod, phase="Failed", reason=reason, message=message)
                    self.rejected += 1

    def _set_status(self, pod: Any, **status: Any) -> None:
        self._kube.core.patch_namespaced_pod_status(
            pod.metadata.name, self._kube.namespace, {"status": status}
        )


def has_server(pod: Any) -> bool:
    """Whether the pod has a server in it."""
    containers = [*(pod.spec.init_containers or []), *pod.spec.containers]
    return any(container.name == names.SERVER_CONTAINER for container in containers)


def has_role(role: str) -> Callable[[Any], bool]:
    """Whether a pod is of a role."""
    return lambda pod: bool(pod.metadata.labels[names.LABEL_ROLE] == role)


def excluded_nodes(pod_spec: Any) -> list[str]:
    """Names of the nodes that a pod's affinity keeps it away from, whichever term holds."""
    affinity = pod_spec.affinity
    if affinity is None or affinity.node_affinity is None:
        return []
    terms = affinity.node_affinity.required_during_scheduling_ignored_during_execution.node_selector_terms
    kept_away = [
        {
            name
            for expression in term.match_expressions or []
            if (expression.key, expression.operator) == (HOSTNAME, "NotIn")
            for name in expression.values
        }
        for term in terms
    ]
    return sorted(set.intersection(*kept_away))


@contextlib.contextmanager
def played_node(kube: Kube, name: str, gpus: int = 8, product: str = "") -> Iterator[PlayedNode]:
    """A node with so many GPUs; it goes at the end, with its pods of the namespace."""
    labels = {HOSTNAME: name} | ({PRODUCT: product} if product else {})
    resources = {"cpu": "64", "memory": "256Gi", "pods": "110"} | ({GPU: str(gpus)} if gpus else {})
    node = PlayedNode(kube, name)
    node.beat()
    kube.core.create_node({"metadata": {"name": name, "labels": labels}})
    kube.core.patch_node_status(name, {"status": {"capacity": resources, "allocatable": resources}})
    node.set_ready("True", "played by the test")
    thread = threading.Thread(target=node.play, daemon=True)
    thread.start()
    try:
        yield node
    finally:
        node.stop()
        thread.join()
        for pod in node.pods():
            node.let_go(pod)
        kube.core.delete_node(name)
        until(lambda: name not in _nodes(kube), 20, f"node {name} is gone")


def _nodes(kube: Kube) -> list[str]:
    return [node.metadata.name for node in kube.core.list_node().items]


@contextlib.contextmanager
def _unless_gone() -> Iterator[None]:
    try:
        yield
    except client.ApiException as error:
        if error.status not in {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT}:
            raise


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _precise_now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
