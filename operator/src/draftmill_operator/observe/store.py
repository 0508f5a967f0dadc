"""The cache of the API's objects, fed by watches and by the answers to the operator's own writes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any

from draftmill_api import names as api_names
from draftmill_operator.run import SYNTHRUN, RunKey

Object = dict[str, Any]


class Kind(StrEnum):
    """Kinds of objects that are watched."""

    RUN = "SynthRun"
    JOB = "Job"
    DEPLOYMENT = "Deployment"
    SERVICE = "Service"
    POD = "Pod"
    CONFIG_MAP = "ConfigMap"


CHILD_KINDS = (Kind.JOB, Kind.DEPLOYMENT, Kind.SERVICE, Kind.POD, Kind.CONFIG_MAP)


class Store:
    """The newest known version of each watched object, children also by their run's uid."""

    def __init__(self) -> None:
        self._objects: dict[Kind, dict[tuple[str, str], Object]] = {kind: {} for kind in Kind}
        self._by_run: dict[tuple[str, Kind], set[tuple[str, str]]] = defaultdict(set)
        self._bereft: set[str] = set()

    def put(self, kind: Kind, raw: Object) -> bool:
        """Take a version of an object; False if it is no newer than the known one."""
        where = _where(raw)
        known = self._objects[kind].get(where)
        if known is not None and not _is_newer(raw, known):
            return False
        if known is not None:
            self._unlink(kind, known)
        self._objects[kind][where] = _slim(raw)
        self._by_run[run_uid(raw), kind].add(where)
        return True

    def remove(self, kind: Kind, raw: Object) -> bool:
        """Forget an object; False if it is not known, or another one of that name is."""
        where = _where(raw)
        known = self._objects[kind].get(where)
        if known is None or known["metadata"]["uid"] != raw["metadata"]["uid"]:
            return False
        self._unlink(kind, known)
        del self._objects[kind][where]
        self._bereft.discard(known["metadata"]["uid"])
        if kind is Kind.POD:
            self._bereft.add(controller_uid(known) or "")
        return True

    def has_lost_a_pod(self, uid: str) -> bool:
        """Whether a pod of this owner was seen to vanish: the Job controller does not count every one."""
        return uid in self._bereft

    def run(self, key: RunKey) -> Object | None:
        """The run of that name."""
        return self._objects[Kind.RUN].get((key.namespace, key.name))

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """An object by its name."""
        return self._objects[kind].get((namespace, name))

    def children(self, kind: Kind, uid: str) -> Iterator[Object]:
        """Objects with the run's uid as a label, in the order of their names."""
        for where in sorted(self._by_run.get((uid, kind), ())):
            yield self._objects[kind][where]

    def all(self, kind: Kind) -> Iterable[Object]:
        """All objects of a kind."""
        return tuple(self._objects[kind].values())

    def run_keys(self) -> list[RunKey]:
        """All runs."""
        return [RunKey(SYNTHRUN, namespace, name) for namespace, name in self._objects[Kind.RUN]]

    def _unlink(self, kind: Kind, raw: Object) -> None:
        index = run_uid(raw), kind
        self._by_run[index].discard(_where(raw))
        if not self._by_run[index]:
            del self._by_run[index]


def run_uid(raw: Object) -> str:
    """The uid of the run that a child says it belongs to."""
    labels: dict[str, str] = raw["metadata"].get("labels") or {}
    return labels.get(api_names.LABEL_RUN_UID, "")


def run_of_child(raw: Object) -> RunKey | None:
    """The run that a child's annotation names."""
    metadata = raw["metadata"]
    name = (metadata.get("annotations") or {}).get(api_names.ANNOTATION_RUN_NAME)
    return RunKey(SYNTHRUN, metadata["namespace"], name) if name else None


def controller(raw: Object) -> Object | None:
    """The reference to the object's controlling owner."""
    owners: list[Object] = raw["metadata"].get("ownerReferences") or []
    return next((owner for owner in owners if owner.get("controller")), None)


def controller_uid(raw: Object) -> str | None:
    """The uid of the object's controlling owner."""
    owner = controller(raw)
    return owner["uid"] if owner is not None else None


def _where(raw: Object) -> tuple[str, str]:
    return raw["metadata"]["namespace"], raw["metadata"]["name"]


def _is_newer(raw: Object, known: Object) -> bool:
    """Resource versions of one object grow; of another object of that name the younger one counts."""
    return int(raw["metadata"]["resourceVersion"]) > int(known["metadata"]["resourceVersion"])


def _slim(raw: Object) -> Object:
    metadata = {key: value for key, value in raw["metadata"].items() if key != "managedFields"}
    return {**raw, "metadata": metadata}
