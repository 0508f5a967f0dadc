"""Ended pods that the cache lacks although their Job has counted them.

Every kind has a watch of its own, and one may lag behind another. A Job that has ended is therefore no proof
that a pod which the cache does not have is gone with its last words: before anything follows from that, the
API server is asked.
"""

from __future__ import annotations

from draftmill_operator.kube.writes import Kube
from draftmill_operator.observe.pods import observe_pod
from draftmill_operator.observe.store import Kind, Store
from draftmill_operator.observe.types import Observed, ObservedJob
from draftmill_operator.run import RunIdentity

_Count = tuple[str, int, int]
"""A Job's uid, and how many pods it has counted as succeeded and as failed."""


class Latecomers:
    """Brings the cache what the Jobs' counts say that it lacks."""

    def __init__(self, kube: Kube, store: Store) -> None:
        self._kube = kube
        self._store = store
        self._asked: dict[str, frozenset[_Count]] = {}
        """By the run's uid: counts of its Jobs for which the API server had no more pods either."""

    async def fetch(self, run: RunIdentity, seen: Observed) -> bool:
        """Ask for what is missing, once for each count of a Job; whether the cache has gained anything."""
        lacking = frozenset(_count(job) for job in seen.jobs if job.has_unseen_pods and not job.deleting)
        new = lacking - self._asked.pop(run.uid, frozenset())
        gained = [await self._fetch(run.key.namespace, job_uid) for job_uid, _, _ in sorted(new)]
        if lacking:
            self._asked[run.uid] = lacking
        return any(gained)

    def forget(self, run_uid: str) -> None:
        """The run is going away."""
        self._asked.pop(run_uid, None)

    async def _fetch(self, namespace: str, job_uid: str) -> bool:
        pods = await self._kube.pods_of_job(namespace, job_uid)
        news = [pod for pod in pods if observe_pod(pod).ended and self._store.put(Kind.POD, pod)]
        return bool(news)


def _count(job: ObservedJob) -> _Count:
    return job.uid, job.succeeded_pods, job.failed_pods
