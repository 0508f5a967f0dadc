"""The API server in memory: objects with versions, deletion in steps, and the events of its watches."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from draftmill_operator.kube.client import APPLY_PATCH, JSON, JSON_PATCH, KubeClient, Resource
from draftmill_operator.kube.errors import ApiError
from draftmill_operator.kube.resources import RESOURCES
from draftmill_operator.observe.store import RUN_KINDS, Kind, Object, controller_uid

NAMESPACE = "team"
_KINDS = {resource.plural: kind for kind, resource in RESOURCES.items()}


class Killed(BaseException):
    """The operator's process ends at this point."""


@dataclass(frozen=True)
class WatchEvent:
    """What a watch delivers."""

    type: str
    kind: Kind
    raw: Object


@dataclass
class Fault:
    """What befalls a write of the operator."""

    after: int
    """Writes that go well before it."""
    only: Kind | None
    """Writes to this kind alone count; all when None."""
    lands: bool
    """Whether the server carries the write out all the same."""
    error: BaseException


class ApiServer:
    """Objects by kind and name, all in one namespace. Stored objects are never changed in place."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._versions = itertools.count(1)
        self._uids = itertools.count(1)
        self.objects: dict[Kind, dict[str, Object]] = {kind: {} for kind in Kind}
        self.events: dict[Kind, list[WatchEvent]] = {kind: [] for kind in Kind}
        """Every event of each kind's watch there ever was."""

    def all(self, kind: Kind) -> list[Object]:
        """Objects of a kind, oldest first."""
        return list(self.objects[kind].values())

    def owned(self, kind: Kind, owner_uid: str) -> list[Object]:
        """Objects of a kind with this controller."""
        return [raw for raw in self.objects[kind].values() if controller_uid(raw) == owner_uid]

    def create(self, kind: Kind, manifest: Object) -> Object:
        """Store a new object."""
        metadata = manifest["metadata"] | {
            "uid": f"uid-{next(self._uids)}",
            "creationTimestamp": self.time(),
            "generation": 1,
            "namespace": NAMESPACE,
        }
        return self._store(kind, "ADDED", manifest | {"metadata": metadata})

    def change(self, kind: Kind, name: str, /, **parts: Any) -> Object:
        """Replace parts of an object; `metadata` is merged, and another spec is another generation."""
        old = self.objects[kind][name]
        metadata = old["metadata"] | parts.pop("metadata", {})
        new = old | parts | {"metadata": metadata}
        if new == old:
            return old
        if "spec" in parts and parts["spec"] != old["spec"]:
            metadata["generation"] = old["metadata"]["generation"] + 1
        return self._store(kind, "MODIFIED", new)

    def mark_deleted(self, kind: Kind, name: str, grace: float = 0) -> None:
        """The first step of a deletion."""
        raw = self.objects[kind][name]
        if "deletionTimestamp" not in raw["metadata"]:
            self.change(kind, name, metadata={"deletionTimestamp": self.time(grace)})

    def remove(self, kind: Kind, name: str) -> None:
        """The last step of a deletion."""
        raw = self.objects[kind].pop(name)
        self.events[kind].append(WatchEvent("DELETED", kind, self._with_version(raw)))

    def time(self, later: float = 0) -> str:
        """Now, as Kubernetes writes it."""
        return (self._now() + timedelta(seconds=later)).strftime("%Y-%m-%dT%H:%M:%SZ")

    def _store(self, kind: Kind, event: str, raw: Object) -> Object:
        versioned = self._with_version(raw)
        self.objects[kind][raw["metadata"]["name"]] = versioned
        self.events[kind].append(WatchEvent(event, kind, versioned))
        return versioned

    def _with_version(self, raw: Object) -> Object:
        return raw | {"metadata": raw["metadata"] | {"resourceVersion": str(next(self._versions))}}


class ApiClient(KubeClient):
    """The operator's connection to the server in memory."""

    def __init__(self, server: ApiServer, created: Callable[[Object], None]) -> None:
        self._server = server
        self._created = created
        self.fault: Fault | None = None
        self.writes: list[str] = []
        """Every write that was sent, for people."""
        self.lists = 0
        """How often the pods of a Job were asked for."""

    async def request(
        self,
        verb: str,
        resource: Resource,
        path: str,
        *,
        params: dict[str, str] | None = None,
        body: Any = None,
        content_type: str = JSON,
        accept: str = JSON,  # noqa: ARG002  nothing here depends on it
    ) -> Object:
        """One request; waits for nothing."""
        kind = _KINDS.get(resource.plural)
        name, _, subresource = path.partition(f"/{resource.plural}")[2].lstrip("/").partition("/")
        if verb == "GET":
            selector = (params or {}).get("labelSelector", "")
            return self._get(kind, name) if name else self._list(kind, selector)
        if kind is None:
            return {}
        self.writes.append(f"{verb} {kind} {name} {subresource}".strip())
        fault = self._befalls(kind)
        if fault is not None and not fault.lands:
            raise fault.error
        answer = self._write(verb, kind, name, body, content_type)
        if fault is not None:
            raise fault.error
        return answer

    def _befalls(self, kind: Kind) -> Fault | None:
        fault = self.fault
        if fault is None or fault.only not in {None, kind}:
            return None
        fault.after -= 1
        if fault.after >= 0:
            return None
        self.fault = None
        return fault

    def _get(self, kind: Kind | None, name: str) -> Object:
        raw = self._server.objects[kind].get(name) if kind is not None else None
        if raw is None:
            raise ApiError(404, "NotFound", f"{name} not found")
        return raw

    def _list(self, kind: Kind | None, selector: str) -> Object:
        """Pods of a Job; of nothing else there is a list."""
        label, _, uid = selector.partition("=")
        is_of_job = kind is Kind.POD and label == "batch.kubernetes.io/controller-uid"
        self.lists += is_of_job
        return {"items": self._server.owned(Kind.POD, uid) if is_of_job else [], "metadata": {}}

    def _write(self, verb: str, kind: Kind, name: str, body: Any, content_type: str) -> Object:
        live = self._server.objects[kind].get(name)
        if content_type == APPLY_PATCH:
            return self._apply(kind, name, live, body)
        if live is None:
            raise ApiError(404, "NotFound", f"{name} not found")
        if verb == "DELETE":
            return self._delete(kind, live, body)
        if content_type == JSON_PATCH:
            for operation in body:
                if operation["op"] == "test" and _at(live, operation["path"]) != operation["value"]:
                    raise ApiError(422, "Invalid", "the server rejected our request")
            return self._server.change(kind, name, status=body[-1]["value"])
        annotations = live["metadata"].get("annotations", {}) | body["metadata"]["annotations"]
        return self._server.change(kind, name, metadata={"annotations": annotations})

    def _apply(self, kind: Kind, name: str, live: Object | None, manifest: Object) -> Object:
        if live is None:
            created = self._server.create(kind, manifest)
            self._created(created)
            return created
        return self._server.change(kind, name, **manifest)

    def _delete(self, kind: Kind, live: Object, options: Object) -> Object:
        metadata = live["metadata"]
        if options["preconditions"]["uid"] != metadata["uid"]:
            raise ApiError(409, "Conflict", "the uid in the precondition is another one")
        if kind in RUN_KINDS:
            self._server.remove(kind, metadata["name"])
        else:
            self._server.mark_deleted(kind, metadata["name"], grace=30 if kind is Kind.POD else 0)
        return {}


def _at(raw: Object, path: str) -> Any:
    value: Any = raw
    for key in path.strip("/").split("/"):
        value = value.get(key)
    return value
