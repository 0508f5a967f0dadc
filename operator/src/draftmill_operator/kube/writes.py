"""The operator's writes: children, statuses, annotations, events."""

from __future__ import annotations

import logging
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from draftmill_api import names as api_names
from draftmill_api.base import bytes_of
from draftmill_operator.kube.client import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, Json, KubeClient
from draftmill_operator.kube.errors import ApiError
from draftmill_operator.kube.resources import CLAIMS, EVENTS, NODES, RESOURCES
from draftmill_operator.observe.store import Kind
from draftmill_operator.run import RunIdentity
from draftmill_operator.status.events import Event

log = logging.getLogger(__name__)

_JOB_LABEL: Final = "batch.kubernetes.io/controller-uid"


class Propagation(StrEnum):
    """When an object goes that others belong to."""

    FOREGROUND = "Foreground"
    """After the last of them."""
    BACKGROUND = "Background"
    """At once; garbage collection sees to them."""


class Kube:
    """What the operator does to the cluster, in its own words."""

    def __init__(self, client: KubeClient, identity: str) -> None:
        self.client = client
        self._identity = identity

    async def apply(self, manifest: Json) -> Json:
        """Server-side apply; unknown fields are refused instead of dropped.

        Raises:
            ApiError: the server refuses the object.
        """
        resource = RESOURCES[Kind(manifest["kind"])]
        metadata = manifest["metadata"]
        return await self.client.request(
            "PATCH",
            resource,
            resource.path(metadata["namespace"], metadata["name"]),
            params={
                "fieldManager": api_names.FIELD_MANAGER,
                "force": "true",
                "fieldValidation": "Strict",
            },
            body=manifest,
            content_type=APPLY_PATCH,
        )

    async def delete(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        uid: str,
        propagation: Propagation = Propagation.FOREGROUND,
    ) -> None:
        """Delete exactly this object and what it owns; gone already is as good."""
        resource = RESOURCES[kind]
        try:
            await self.client.request(
                "DELETE",
                resource,
                resource.path(namespace, name),
                body={
                    "apiVersion": "v1",
                    "kind": "DeleteOptions",
                    "propagationPolicy": propagation.value,
                    "preconditions": {"uid": uid},
                },
            )
        except ApiError as error:
            if not (error.is_not_found or error.is_conflict):
                raise

    async def annotate_pod(self, namespace: str, name: str, key: str, value: str) -> None:
        """Set an annotation, which makes the kubelet look at the pod's volumes; a pod may be gone."""
        resource = RESOURCES[Kind.POD]
        try:
            await self.client.request(
                "PATCH",
                resource,
                resource.path(namespace, name),
                params={"fieldManager": api_names.FIELD_MANAGER},
                body={"metadata": {"annotations": {key: value}}},
                content_type=MERGE_PATCH,
            )
        except ApiError as error:
            if not error.is_not_found:
                raise

    async def write_status(self, run: RunIdentity, status: Json) -> Json | None:
        """Replace the run's status; None if this run is gone, or another one has its name."""
        resource = RESOURCES[Kind(run.key.kind)]
        try:
            return await self.client.request(
                "PATCH",
                resource,
                resource.path(run.key.namespace, run.key.name, "status"),
                params={"fieldManager": api_names.FIELD_MANAGER, "fieldValidation": "Strict"},
                body=[
                    {"op": "test", "path": "/metadata/uid", "value": run.uid},
                    {"op": "add", "path": "/status", "value": status},
                ],
                content_type=JSON_PATCH,
            )
        except ApiError as error:
            # The server says Invalid without causes when the test of a JSON patch fails.
            if error.is_not_found or (error.code == 422 and not error.causes):
                return None
            raise

    async def record(self, run: RunIdentity, events: tuple[Event, ...], now: datetime) -> None:
        """Record events on the run; one that cannot be recorded is logged, and the run goes on."""
        time = now.strftime("%Y-%m-%dT%H:%M:%SZ")
        for event in events:
            body = {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"generateName": f"{run.key.name[:200]}.", "namespace": run.key.namespace},
                "involvedObject": {
                    "apiVersion": api_names.API_VERSION,
                    "kind": run.key.kind,
                    "namespace": run.key.namespace,
                    "name": run.key.name,
                    "uid": run.uid,
                },
                "type": event.type.value,
                "reason": event.reason,
                "message": event.message[:1024],
                "source": {"component": "draftmill-operator"},
                "reportingComponent": "draftmill-operator",
                "reportingInstance": self._identity[:128],
                "firstTimestamp": time,
                "lastTimestamp": time,
                "count": 1,
            }
            try:
                await self.client.request("POST", EVENTS, EVENTS.path(run.key.namespace), body=body)
            except ApiError as error:
                log.warning("event %s of %s is lost: %s", event.reason, run.key, error)

    async def node(self, name: str) -> Json | None:
        """A node, or None if there is none."""
        return await self.client.get(NODES, None, name)

    async def nodes(self) -> list[Json]:
        """All nodes."""
        return [node async for node in self.client.list(NODES, None)]

    async def pods_of_job(self, namespace: str, job_uid: str) -> list[Json]:
        """The pods of a Job that there are now, whatever the watch has brought."""
        pods = self.client.list(RESOURCES[Kind.POD], namespace, f"{_JOB_LABEL}={job_uid}")
        return [{"apiVersion": "v1", "kind": Kind.POD.value, **pod} async for pod in pods]

    async def placed_pods(self) -> list[Json]:
        """All pods of the cluster that hold a node's resources."""
        fields = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
        pods = RESOURCES[Kind.POD]
        return [pod async for pod in self.client.list(pods, None, fields=fields)]

    async def access_modes(self, namespace: str, claim: str) -> list[str]:
        """How a claim may be mounted; nothing while there is no such claim."""
        found = await self.client.get(CLAIMS, namespace, claim)
        return list((found or {}).get("spec", {}).get("accessModes") or [])

    async def capacity(self, namespace: str, claim: str) -> int | None:
        """Bytes that a claim has; None while it is not bound, or there is no such claim."""
        found = await self.client.get(CLAIMS, namespace, claim)
        said = ((found or {}).get("status", {}).get("capacity") or {}).get("storage")
        return bytes_of(said) if said is not None else None

    async def warnings_about(self, namespace: str, uid: str) -> list[Json]:
        """Warning events about an object, oldest first."""
        answer = await self.client.request(
            "GET",
            EVENTS,
            EVENTS.path(namespace),
            params={"fieldSelector": f"involvedObject.uid={uid},type=Warning"},
        )
        events: list[dict[str, Any]] = answer.get("items") or []
        return sorted(events, key=lambda event: event.get("lastTimestamp") or event.get("eventTime") or "")
