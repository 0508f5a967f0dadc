"""The cache of the API's objects, fed by watches and by the answers to the operator's own writes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any

from draftmill_api import names as api_names
from draftmill_operator.observe.pulls import with_known_causes
from draftmill_operator.run import RunKey

Object = dict[str, Any]


class Kind(StrEnum):
    """Kinds of objects that are watched."""

    SYNTH_RUN = "SynthRun"
    EXTRACT_RUN = "ExtractRun"
    DRAFTER_TRAIN = "DrafterTrain"
    JOB = "Job"
    DEPLOYMENT = "Deployment"
    SERVICE = "Service"
    POD = "Pod"
    CONFIG_MAP = "ConfigMap"


RUN_KINDS = (Kind.SYNTH_RUN, Kind.EXTRACT_RUN, Kind.DRAFTER_TRAIN)
CHILD_KINDS = (Kind.JOB, Kind.DEPLOYMENT, Kind.SERVICE, Kind.POD, Kind.CONFIG_MAP)

_KINDS = {kind.value.lower(): kind for kind in RUN_KINDS}
"""Run kinds by the value of a child's label."""
_SOURCES = {"synthRun": Kind.SYNTH_RUN, "extractRun": Kind.EXTRACT_RUN}
"""Fields of `spec.from` and the kind of run that they name."""


class Store:
    """The newest known version of each watched object, children also by their run's uid."""

    def __init__(self) -> None:
        self._objects: dict[Kind, dict[tuple[str, str], Object]] = {kind: {} for kind in Kind}
        self._by_run: dict[tuple[str, Kind], set[tuple[str, str]]] = defaultdict(set)
        self._bereft: set[str] = set()
        self._waiting: dict[RunKey, set[RunKey]] = defaultdict(set)
        """Runs that wait for another one, by that."""

    def put(self, kind: Kind, raw: Object) -> bool:
        """Take a version of an object; False if it is no newer than the known one."""
        where = _where(raw)
        known = self._objects[kind].get(where)
        if known is not None and not _is_newer(raw, known):
            return False
        if known is not None:
            self._unlink(kind, known)
            raw = _with_what_was_said(kind, raw, known)
        self._objects[kind][where] = _slim(raw)
        self._by_run[run_uid(raw), kind].add(where)
        awaited = awaited_run(kind, raw)
        if awaited is not None:
            self._waiting[awaited].add(_run_key(kind, raw))
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
        return self._objects[Kind(key.kind)].get((key.namespace, key.name))

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

    def runs(self) -> Iterator[tuple[RunKey, Object]]:
        """All runs of all kinds."""
        for kind in RUN_KINDS:
            for raw in self.all(kind):
                yield _run_key(kind, raw), raw

    def concerned(self, kind: Kind, raw: Object) -> tuple[RunKey | None, frozenset[RunKey]]:
        """The run that an object is, or that it belongs to; and the runs that wait for it."""
        if kind not in RUN_KINDS:
            return run_of_child(raw), frozenset()
        key = _run_key(kind, raw)
        return key, frozenset(self._waiting.get(key, ()))

    def _unlink(self, kind: Kind, raw: Object) -> None:
        index = run_uid(raw), kind
        self._by_run[index].discard(_where(raw))
        if not self._by_run[index]:
            del self._by_run[index]
        awaited = awaited_run(kind, raw)
        if awaited is not None:
            self._waiting[awaited].discard(_run_key(kind, raw))
            if not self._waiting[awaited]:
                del self._waiting[awaited]


def run_uid(raw: Object) -> str:
    """The uid of the run that a child says it belongs to."""
    labels: dict[str, str] = raw["metadata"].get("labels") or {}
    return labels.get(api_names.LABEL_RUN_UID, "")


def run_of_child(raw: Object) -> RunKey | None:
    """The run that a child's annotation and label name."""
    metadata = raw["metadata"]
    name = (metadata.get("annotations") or {}).get(api_names.ANNOTATION_RUN_NAME)
    kind = _KINDS.get((metadata.get("labels") or {}).get(api_names.LABEL_KIND, ""))
    return RunKey(kind.value, metadata["namespace"], name) if name and kind is not None else None


def awaited_run(kind: Kind, raw: Object) -> RunKey | None:
    """The earlier run whose output a run waits for, whether or not it can be parsed."""
    status = raw.get("status") or {}
    if kind not in RUN_KINDS or status.get("input") or status.get("completionTime"):
        return None
    source: dict[str, Any] = (raw.get("spec") or {}).get("from") or {}
    for field, earlier in _SOURCES.items():
        if field in source:
            return RunKey(earlier.value, raw["metadata"]["namespace"], source[field]["name"])
    return None


def controller(raw: Object) -> Object | None:
    """The reference to the object's controlling owner."""
    owners: list[Object] = raw["metadata"].get("ownerReferences") or []
    return next((owner for owner in owners if owner.get("controller")), None)


def controller_uid(raw: Object) -> str | None:
    """The uid of the object's controlling owner."""
    owner = controller(raw)
    return owner["uid"] if owner is not None else None


def _run_key(kind: Kind, raw: Object) -> RunKey:
    return RunKey(kind.value, *_where(raw))


def _where(raw: Object) -> tuple[str, str]:
    return raw["metadata"]["namespace"], raw["metadata"]["name"]


def _is_newer(raw: Object, known: Object) -> bool:
    """Resource versions of one object grow; of another object of that name the younger one counts."""
    return int(raw["metadata"]["resourceVersion"]) > int(known["metadata"]["resourceVersion"])


def _with_what_was_said(kind: Kind, raw: Object, known: Object) -> Object:
    """A version of a pod with the words of the one before it that still hold, and that it has not."""
    is_same = kind is Kind.POD and raw["metadata"]["uid"] == known["metadata"]["uid"]
    return with_known_causes(raw, known) if is_same else raw


def _slim(raw: Object) -> Object:
    metadata = {key: value for key, value in raw["metadata"].items() if key != "managedFields"}
    return {**raw, "metadata": metadata}
