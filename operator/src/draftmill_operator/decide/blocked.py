"""Folders of the node that the administrator has not allowed.

The run waits instead of failing: when the administrator allows the prefix, it goes on by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from draftmill_api.v1alpha1.pod import PodOverrides
from draftmill_api.v1alpha1.status import Phase
from draftmill_operator.decide.types import Decision, Situation
from draftmill_operator.kinds.base import AnyKind, AnyRun
from draftmill_operator.observe.types import Problem

HOST_PATH_NOT_ALLOWED = "HostPathNotAllowed"


def host_path_refused(situation: Situation) -> Decision | None:
    """Nothing is started while the run names a hostPath outside the allowed prefixes.

    A run that has its plan was allowed when it started, and is let go on.
    """
    if situation.run.status.plan is not None:
        return None
    for field, path in host_paths(situation.kind, situation.run):
        if not is_allowed(path, situation.host_path_prefixes):
            return Decision(Phase.PENDING, problem=_problem(field, path, situation.host_path_prefixes))
    return None


def host_paths(kind: AnyKind, run: AnyRun) -> Iterator[tuple[str, str]]:
    """Every hostPath of the run, be it inherited, with the field that names it."""
    storage, bound = kind.storage(run), kind.input(run)
    volumes = [("storage.models", storage.models), ("storage.data", storage.data)]
    volumes += [("status.input.volume", bound.volume)] if bound is not None else []
    for name, volume in volumes:
        if volume.host_path is not None:
            yield name, volume.host_path.path
    for field, overrides in kind.overrides(run.spec):
        yield from _of_pod(field, overrides)


def is_allowed(path: str, prefixes: tuple[str, ...]) -> bool:
    """Whether the path is one of the prefixes or lies below one."""
    if ".." in path.split("/"):
        return False
    return any(
        path.rstrip("/") == prefix.rstrip("/") or path.startswith(prefix.rstrip("/") + "/")
        for prefix in prefixes
    )


def _of_pod(field: str, pod: PodOverrides | None) -> Iterator[tuple[str, str]]:
    volumes: list[dict[str, Any]] = (pod.volumes if pod is not None else None) or []
    for volume in volumes:
        if "hostPath" in volume:
            yield f"{field}.volumes[{volume['name']}]", volume["hostPath"].get("path", "")


def _problem(field: str, path: str, prefixes: tuple[str, ...]) -> Problem:
    allowed = ", ".join(prefixes) if prefixes else "none"
    return Problem(
        HOST_PATH_NOT_ALLOWED,
        f"{field} names hostPath {path!r}, which is outside the prefixes that the administrator allows "
        f"(hostPathPrefixes: {allowed}); use a claim or have the prefix added",
    )
