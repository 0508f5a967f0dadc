"""Objects that do not explain themselves: what events, nodes and the rest of the cluster say of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from draftmill_operator.capacity import room_for
from draftmill_operator.kinds.base import Serving
from draftmill_operator.kube.errors import ApiError
from draftmill_operator.kube.writes import Kube
from draftmill_operator.observe.pods import UNSCHEDULABLE
from draftmill_operator.observe.types import JobState, Observed, ObservedJob, ObservedPod, Problem
from draftmill_operator.render.hardware import Hardware

JOB_PATIENCE: Final = timedelta(seconds=5)
"""Longest time from a Job to its pod without asking why."""
POD_PATIENCE: Final = timedelta(seconds=15)
"""Longest time from a pod to its container without asking why."""
REMOVAL_PATIENCE: Final = timedelta(seconds=10)
"""Longest time that a pod may stay after the end of its grace period without asking why."""
LOOK_AGAIN: Final = 5.0
REMEMBERED: Final = timedelta(seconds=20)
"""So long an answer about nodes is used again, for all runs."""
NODE_LOST: Final = "NodeLost"

T = TypeVar("T")


@dataclass(frozen=True)
class Silent:
    """An object that should have gone on by now."""

    uid: str
    created: datetime
    patience: timedelta

    def is_due(self, now: datetime) -> bool:
        """Whether its patience is over."""
        return now - self.created >= self.patience


class Detective:
    """Finds out what is wrong; asks the API server no more often than is useful."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._answers: dict[str, tuple[datetime, Any]] = {}

    async def explain(
        self, namespace: str, seen: Observed, serving: Serving, hardware: Hardware | None, now: datetime
    ) -> tuple[dict[str, Problem], float | None]:
        """What is wrong with each object that does not say it itself, by uid; and when to look again.

        `hardware` is what pods ask for that need GPUs: the servers, or the workers where none stands apart.
        """
        silent = list(silent_objects(seen))
        leaving = [pod for pod in seen.live_pods if pod.node and pod.deleting]
        lost = [pod for pod in seen.live_pods if _may_be_lost(pod, now)]
        computing = _computing(seen, serving) if hardware is not None else ()
        unplaced = [pod for pod in computing if _is_unplaced(pod)]
        findings: dict[str, Problem] = {}
        for item in silent:
            if item.is_due(now):
                warnings = await self._kube.warnings_about(namespace, item.uid)
                if warnings:
                    findings[item.uid] = _problem(warnings[-1])
        for pod in lost:
            words = await self._node_words(pod.node, now)
            if words:
                findings[pod.uid] = Problem(NODE_LOST, f"node {pod.node} of pod {pod.name} is lost: {words}")
        if unplaced and hardware is not None and hardware.gpus:
            room = await self._room(hardware, now)
            for pod in unplaced if room else ():
                said = pod.problem.message if pod.problem is not None else ""
                findings[pod.uid] = Problem(UNSCHEDULABLE, f"{said} ({room})")
        return findings, LOOK_AGAIN if silent or leaving or lost or unplaced else None

    async def _node_words(self, name: str, now: datetime) -> str:
        """What is said of a node that is not ready; empty if it is, or may not be asked."""

        async def ask() -> str:
            node = await self._kube.node(name)
            if node is None:
                return "it is no longer part of the cluster"
            conditions = (node.get("status") or {}).get("conditions") or []
            ready: dict[str, Any] = next((item for item in conditions if item["type"] == "Ready"), {})
            if ready.get("status") == "True":
                return ""
            return str(ready.get("message") or ready.get("reason") or "it is not ready")

        return await self._asked(f"node {name}", ask, now) or ""

    async def _room(self, hardware: Hardware, now: datetime) -> str | None:
        async def ask() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
            return await self._kube.nodes(), await self._kube.placed_pods()

        cluster = await self._asked("cluster", ask, now)
        return room_for(hardware, *cluster) if cluster is not None else None

    async def _asked(self, key: str, ask: Callable[[], Awaitable[T]], now: datetime) -> T | None:
        """An answer that is young enough; None where the operator has no right to it."""
        found = self._answers.get(key)
        if found is not None and now - found[0] < REMEMBERED:
            answer: T | None = found[1]
            return answer
        try:
            answer = await ask()
        except ApiError as error:
            if not error.is_forbidden:
                raise
            answer = None
        young = {name: item for name, item in self._answers.items() if now - item[0] < REMEMBERED}
        self._answers = young | {key: (now, answer)}
        return answer


def _computing(seen: Observed, serving: Serving) -> tuple[ObservedPod, ...]:
    """Pods that ask for GPUs."""
    if serving.apart is not None:
        return seen.servers.pods
    return tuple(pod for job in seen.workers for pod in job.live_pods)


def silent_objects(seen: Observed) -> Iterator[Silent]:
    """Jobs without a pod and pods without a container, that give no reason of their own."""
    jobs = [job for job in seen.jobs if _is_active(job)]
    for job in jobs:
        if not (job.pods or job.failed_pods or job.lost_pod):
            yield Silent(job.uid, job.created, JOB_PATIENCE)
    for pod in (*seen.servers.pods, *(pod for job in jobs for pod in job.live_pods)):
        if _is_silent(pod):
            yield Silent(pod.uid, pod.created, POD_PATIENCE)


def _is_active(job: ObservedJob) -> bool:
    return job.state is JobState.ACTIVE and not (job.deleting or job.suspended)


def _is_silent(pod: ObservedPod) -> bool:
    return not (pod.started or pod.ended or pod.deleting or pod.problem is not None)


def _is_unplaced(pod: ObservedPod) -> bool:
    return not pod.deleting and pod.problem is not None and pod.problem.reason == UNSCHEDULABLE


def _may_be_lost(pod: ObservedPod, now: datetime) -> bool:
    """The node controller, not the kubelet, calls it not ready; or it outstays its removal."""
    overdue = pod.removal_due is not None and now - pod.removal_due > REMOVAL_PATIENCE
    return bool(pod.node) and (pod.cut_off or overdue)


def _problem(event: dict[str, Any]) -> Problem:
    return Problem(event.get("reason") or "Warning", event.get("message", ""))
