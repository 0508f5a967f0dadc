"""Nodes that refuse pods of the run: they would be asked again and again.

A Deployment of servers makes another pod many times a second, a Job does so after a while. Nodes are left out
for the role whose pods they refuse: one whose GPUs are sick may be good enough for the finish.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from datetime import timedelta
from typing import Final

from draftmill_api.v1alpha1.runstatus import ExcludedNode
from draftmill_operator.decide.facts import Facts
from draftmill_operator.decide.types import Situation
from draftmill_operator.observe.pods import parse_time
from draftmill_operator.observe.types import JobState, ObservedJob, ObservedPod, Problem
from draftmill_operator.run import EVALUATIONS, Role

NODE_REJECTS = "NodeRejects"
REJECTIONS = 3
"""Pods of a role that a node has to refuse before further ones are kept away from it."""
EXCLUDED_FOR = timedelta(minutes=10)
"""After so long a node is tried again; an excluded one only if no server is ready elsewhere."""
UNNAMED: Final = Problem("PodRejected", "the node gave no reason")
_ROLES: Final = (Role.PLAN, Role.SERVER, Role.WORKER, *EVALUATIONS, Role.FINISH)
_MOST_NODES: Final = 16


def with_exclusions(situation: Situation, facts: Facts) -> Facts:
    """The facts with newly excluded nodes, and without those that may be tried again.

    Keeping servers that stand apart away from a node is a new pod template, which replaces every one of them:
    it is done only while none is ready. Before that, `servers_held` asks for no more of them.
    """
    kept = [
        node
        for node in facts.excluded_nodes
        if _is_settled(situation, node.role) or _left(situation, node) > 0
    ]
    known = {(node.role, node.name) for node in kept}
    since = situation.now.strftime("%Y-%m-%dT%H:%M:%SZ")
    new = [
        ExcludedNode(role=role, name=name, reason=(pods[-1].problem or UNNAMED).reason[:128], since=since)
        for role in _ROLES
        if not _is_settled(situation, role)
        for name, pods in sorted(_refusing(situation, role).items())
        if (role, name) not in known
    ]
    return replace(facts, excluded_nodes=tuple([*kept, *new][-_MOST_NODES:]))


def next_try(situation: Situation, facts: Facts) -> float | None:
    """Seconds until a node may be tried again: one that refuses, or an excluded one."""
    waits = [_left(situation, node) for node in facts.excluded_nodes if not _is_settled(situation, node.role)]
    if _is_settled(situation, Role.SERVER):
        waits += [_fresh_for(situation, pods) for pods in _refusing(situation, Role.SERVER).values()]
    return min(waits, default=None)


def servers_held(situation: Situation) -> int | None:
    """So many servers and no more, while a node refuses further ones and others are at work."""
    excluded = situation.facts.kept_from(Role.SERVER)
    server = situation.serving.apart
    if server is None or not _is_settled(situation, Role.SERVER):
        return None
    is_refusing = any(name not in excluded for name in _refusing(situation, Role.SERVER))
    return min(len(situation.endpoints), server.replicas) if is_refusing else None


def rejection_problem(situation: Situation, role: Role) -> Problem | None:
    """Which nodes refuse the run's pods of a role, and what is said of the others."""
    excluded = {node.name: node.reason for node in situation.facts.excluded_nodes if node.role == role}
    for name, pods in _refusing(situation, role).items():
        said = pods[-1].problem or UNNAMED
        excluded[name] = f"{said.reason}: {said.message}"
    if not excluded:
        return None
    nodes = "; ".join(f"node {name} refused {role} pods ({reason})" for name, reason in excluded.items())
    pods_of_role = _pods(situation, role)
    waiting = next((pod.problem for pod in pods_of_role if not pod.ended and pod.problem), None)
    others = f"; elsewhere: {waiting.message}" if waiting is not None else ""
    return Problem(NODE_REJECTS, f"{nodes}, so they are kept away from it for a while{others}")


def left_out(situation: Situation, role: Role) -> set[str]:
    """Names of the nodes that the next pod of a role is kept away from."""
    return {*situation.facts.kept_from(role), *_refusing(situation, role)}


def rejected_to_clean(situation: Situation) -> tuple[ObservedPod, ...]:
    """Refused servers beyond the few that show what is wrong; none is needed once that is recorded.

    Refused pods of a Job are what it counts its tries by; they go with it.
    """
    recorded = situation.facts.kept_from(Role.SERVER)
    found: list[ObservedPod] = []
    for node, pods in _rejected(situation, Role.SERVER).items():
        fresh = [pod for pod in pods if _is_fresh(situation, pod)]
        needed = [] if node in recorded else fresh[-REJECTIONS:]
        found += [pod for pod in pods if pod not in needed]
    return tuple(pod for pod in found if not pod.deleting)


def _is_settled(situation: Situation, role: str) -> bool:
    """Whether pods of the role are at work that another template would replace."""
    return role == Role.SERVER and situation.serving.apart is not None and bool(situation.endpoints)


def _jobs(situation: Situation, role: Role) -> tuple[ObservedJob, ...]:
    seen = situation.seen
    steps = {Role.PLAN: seen.plan, **seen.evaluations, Role.FINISH: seen.finish}
    if role is Role.WORKER:
        return seen.workers
    step = steps.get(role)
    return (step,) if step is not None else ()


def _pods(situation: Situation, role: Role) -> tuple[ObservedPod, ...]:
    if role is Role.SERVER:
        return situation.seen.servers.pods
    return tuple(pod for job in _jobs(situation, role) for pod in job.pods)


def _rejected(situation: Situation, role: Role) -> dict[str, list[ObservedPod]]:
    """Refused pods of a role by node, oldest first."""
    by_node: dict[str, list[ObservedPod]] = defaultdict(list)
    for pod in sorted(_pods(situation, role), key=lambda pod: pod.created):
        if pod.rejected and pod.node:
            by_node[pod.node].append(pod)
    return by_node


def _refusing(situation: Situation, role: Role) -> dict[str, list[ObservedPod]]:
    """The nodes that have refused enough pods of a role, with those.

    One is enough where no further try is left: the next Job would begin to count anew.
    """
    last = {pod.uid for job in _jobs(situation, role) if _has_given_up(situation, job) for pod in job.pods}
    fresh = {
        node: [pod for pod in pods if _is_fresh(situation, pod)]
        for node, pods in _rejected(situation, role).items()
    }
    return {
        node: pods
        for node, pods in fresh.items()
        if len(pods) >= REJECTIONS or any(pod.uid in last for pod in pods)
    }


def _has_given_up(situation: Situation, job: ObservedJob) -> bool:
    """Whether a refusal has ended the Job for good.

    That of a rank ends each Job, and counts as a failure of the worker until it would be one too many.
    """
    if job.together:
        failures = (each.without_progress for each in situation.facts.attempts if each.worker == job.worker)
        return next(failures, 0) + 1 >= min(REJECTIONS, situation.spec.backoff_limit + 1)
    youngest = job.youngest_pod
    return job.state is JobState.FAILED and youngest is not None and youngest.rejected


def _is_fresh(situation: Situation, pod: ObservedPod) -> bool:
    """Whether its refusal still says something about the node."""
    return situation.now - pod.created < EXCLUDED_FOR


def _fresh_for(situation: Situation, pods: list[ObservedPod]) -> float:
    """Seconds until too few of a node's refusals are fresh."""
    end = pods[-REJECTIONS].created + EXCLUDED_FOR
    return max(0.0, (end - situation.now).total_seconds())


def _left(situation: Situation, node: ExcludedNode) -> float:
    return max(0.0, (parse_time(node.since) + EXCLUDED_FOR - situation.now).total_seconds())
