"""Apply: make the cluster's children what was decided, with no write where they are so already."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from draftmill_api import names as api_names
from draftmill_operator.decide.nodes import rejected_to_clean
from draftmill_operator.decide.removals import unwanted_jobs
from draftmill_operator.decide.types import Decision, Situation, Wanted
from draftmill_operator.kinds.base import AnyRun
from draftmill_operator.kube.errors import ApiError
from draftmill_operator.kube.resources import RESOURCES
from draftmill_operator.kube.writes import Kube
from draftmill_operator.metrics import CHILD_ERRORS
from draftmill_operator.observe.store import Kind, Object, Store, controller, controller_uid
from draftmill_operator.observe.types import Observed, Problem
from draftmill_operator.queue import RetryLater
from draftmill_operator.render.metadata import Manifest
from draftmill_operator.run import Role, RunIdentity

NAME_CONFLICT = "NameConflict"
WAITING_FOR_REMOVAL = "WaitingForRemoval"
CHILD_REFUSED = "ChildCreateFailed"


class ChildError(Exception):
    """A child cannot be made; the problem is for the run's status."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(f"{problem.reason}: {problem.message}")
        self.problem = problem


@dataclass(frozen=True)
class _Place:
    kind: Kind
    namespace: str
    name: str

    @classmethod
    def of(cls, manifest: Manifest) -> _Place:
        metadata = manifest["metadata"]
        return cls(Kind(manifest["kind"]), metadata["namespace"], metadata["name"])

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class Applier:
    """Applies children of runs and remembers what the Deployments looked like afterwards."""

    def __init__(self, kube: Kube, store: Store) -> None:
        self._kube = kube
        self._store = store
        self._generations: dict[str, int] = {}

    async def apply(self, situation: Situation, decision: Decision, children: list[Manifest]) -> None:
        """Delete what is no longer wanted, then make what is.

        Raises:
            ChildError: an object of that name belongs to someone else or is on its way out, or the server
                refuses the child.
            RetryLater: a child that the cache lacked is there, as after a write that was carried out unheard.
        """
        await self._remove(situation, decision)
        for manifest in children:
            await self._ensure(situation.run.identity, manifest)

    async def announce_config(self, run: AnyRun, seen: Observed, config_hash: str) -> None:
        """Tell the kubelets of living worker pods that the job config has changed."""
        for job in seen.workers:
            for pod in job.live_pods:
                if pod.config_hash != config_hash and not pod.deleting:
                    await self._kube.annotate_pod(
                        run.key.namespace, pod.name, api_names.ANNOTATION_CONFIG_HASH, config_hash
                    )

    async def _remove(self, situation: Situation, decision: Decision) -> None:
        run = situation.run
        namespace = run.key.namespace
        for job in unwanted_jobs(decision, situation):
            await self._kube.delete(Kind.JOB, namespace, job.name, job.uid)
        for pod in rejected_to_clean(situation):
            await self._kube.delete(Kind.POD, namespace, pod.name, pod.uid)
        for kind in (Kind.DEPLOYMENT, Kind.SERVICE):
            for raw in self._store.children(kind, run.identity.uid):
                metadata = raw["metadata"]
                is_removable = controller_uid(raw) == run.identity.uid and "deletionTimestamp" not in metadata
                if is_removable and not _is_wanted(metadata, decision.wanted):
                    await self._kube.delete(kind, namespace, metadata["name"], metadata["uid"])
                    self._generations.pop(metadata["uid"], None)

    async def _ensure(self, run: RunIdentity, manifest: Manifest) -> None:
        place = _Place.of(manifest)
        live = self._store.get(place.kind, place.namespace, place.name)
        if live is None:
            live = await self._kube.client.get(RESOURCES[place.kind], place.namespace, place.name)
            if live is not None and controller_uid(live) == run.uid:
                self._store.put(place.kind, live)
                raise RetryLater(f"{place} is there and was not in the cache: what was decided is void")
        if live is not None:
            if controller_uid(live) != run.uid:
                raise ChildError(_in_the_way(place, run, live))
            if "deletionTimestamp" in live["metadata"] or self._is_in_force(manifest, live):
                return
        try:
            applied = await self._kube.apply(manifest)
        except ApiError as error:
            if error.is_namespace_ending:
                return
            CHILD_ERRORS.labels(reason=error.reason).inc()
            raise ChildError(Problem(CHILD_REFUSED, f"{place}: {error.message}")) from error
        if live is None or _says_the_same(live, applied):
            self._store.put(place.kind, applied)
        self._remember(applied)

    def _is_in_force(self, manifest: Manifest, live: dict[str, Any]) -> bool:
        """Whether the live object is what was applied last, and that is what is wanted.

        A Job is never edited. A ConfigMap shows its content. A Deployment that someone else edited has
        moved its generation; one that this process has not applied yet is applied once.
        """
        kind = Kind(manifest["kind"])
        if kind is Kind.JOB:
            return True
        annotations = live["metadata"].get("annotations") or {}
        wanted = manifest["metadata"]["annotations"][api_names.ANNOTATION_APPLIED_HASH]
        if annotations.get(api_names.ANNOTATION_APPLIED_HASH) != wanted:
            return False
        if kind is Kind.CONFIG_MAP:
            return bool(live.get("data") == manifest["data"])
        if kind is Kind.DEPLOYMENT:
            generation: int = live["metadata"]["generation"]
            return self._generations.get(live["metadata"]["uid"]) == generation
        return True

    def _remember(self, applied: dict[str, Any]) -> None:
        if applied["kind"] == Kind.DEPLOYMENT:
            self._generations[applied["metadata"]["uid"]] = applied["metadata"]["generation"]


def _is_wanted(metadata: Object, wanted: Wanted) -> bool:
    """Whether a Deployment or a Service stays: the servers', or the one by which a worker's pods find it."""
    if metadata["labels"].get(api_names.LABEL_ROLE) == Role.WORKER:
        return bool(wanted.workers)
    return wanted.servers or wanted.keep_servers


def _says_the_same(live: Object, applied: Object) -> bool:
    """Whether the answer brings nothing about the child that is left to the watch, which calls for a pass."""
    return applied.get("status") == live.get("status") and "deletionTimestamp" not in applied["metadata"]


def _in_the_way(place: _Place, run: RunIdentity, live: Object) -> Problem:
    """An object that is not this run's; one of an earlier run of this name goes by itself."""
    owner = controller(live) or {}
    of_earlier_run = (owner.get("kind"), owner.get("name")) == (run.key.kind, run.key.name)
    if of_earlier_run or "deletionTimestamp" in live["metadata"]:
        return Problem(WAITING_FOR_REMOVAL, f"waiting for {place} to be gone, which is not this run's")
    return Problem(
        NAME_CONFLICT,
        f"{place} exists and does not belong to this run; it is left alone. "
        "Delete it, or create the run under another name",
    )
