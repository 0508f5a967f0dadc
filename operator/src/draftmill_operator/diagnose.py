"""Objects that do not explain themselves: what the events about them say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from draftmill_operator.kube.writes import Kube
from draftmill_operator.observe.types import JobState, Observed, ObservedJob, ObservedPod, Problem

JOB_PATIENCE: Final = timedelta(seconds=5)
"""Longest time from a Job to its pod without asking why."""
POD_PATIENCE: Final = timedelta(seconds=15)
"""Longest time from a pod to its container without asking why."""
LOOK_AGAIN: Final = 5.0


@dataclass(frozen=True)
class Silent:
    """An object that should have gone on by now."""

    uid: str
    created: datetime
    patience: timedelta

    def is_due(self, now: datetime) -> bool:
        """Whether its patience is over."""
        return now - self.created >= self.patience


def silent_objects(seen: Observed) -> Iterator[Silent]:
    """Jobs without a pod and pods without a container, that give no reason of their own."""
    jobs = [job for job in (seen.plan, seen.finish, *seen.workers) if job is not None and _is_active(job)]
    for job in jobs:
        if not (job.pods or job.failed_pods or job.lost_pod):
            yield Silent(job.uid, job.created, JOB_PATIENCE)
    for pod in (*seen.servers.pods, *(pod for job in jobs for pod in job.live_pods)):
        if _is_silent(pod):
            yield Silent(pod.uid, pod.created, POD_PATIENCE)


async def explain(kube: Kube, namespace: str, silent: list[Silent], now: datetime) -> dict[str, Problem]:
    """The newest warning about each silent object, by the object's uid."""
    findings = {}
    for item in silent:
        if item.is_due(now):
            warnings = await kube.warnings_about(namespace, item.uid)
            if warnings:
                findings[item.uid] = _problem(warnings[-1])
    return findings


def _is_active(job: ObservedJob) -> bool:
    return job.state is JobState.ACTIVE and not job.deleting


def _is_silent(pod: ObservedPod) -> bool:
    return not (pod.started or pod.ended or pod.deleting or pod.problem is not None)


def _problem(event: dict[str, Any]) -> Problem:
    return Problem(event.get("reason") or "Warning", event.get("message", ""))
