"""Nodes that refuse pods with a server of the run: they would be asked again and again.

A Deployment of servers makes another pod many times a second. Where servers stand beside the workers, it is
the worker's Job that does so, after a while; its template cannot be edited, so the next attempt keeps away.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from datetime import timedelta

from draftmill_api.v1alpha1.runstatus import ExcludedNode
from draftmill_operator.decide.facts import Facts
from draftmill_operator.decide.types import Situation
from draftmill_operator.observe.pods import parse_time
from draftmill_operator.observe.types import JobState, ObservedJob, ObservedPod, Problem

NODE_REJECTS = "NodeRejects"
REJECTIONS = 3
"""Pods that a node has to refuse before the run's servers are kept away from it."""
EXCLUDED_FOR = timedelta(minutes=10)
"""After so long a node is tried again; an excluded one only if no server is ready elsewhere."""
_MOST_NODES = 16


def with_exclusions(situation: Situation, facts: Facts) -> Facts:
    """The facts with newly excluded nodes, and without those that may be tried again.

    Keeping away from a node is a new pod template, which replaces every server that stands apart: it is done
    only while none is ready. Before that, `servers_held` asks for no more of them.
    """
    if _serve_apart(situation):
        return facts
    kept = [node for node in facts.excluded_nodes if _left(situation, node) > 0]
    known = {node.name for node in kept}
    since = situation.now.strftime("%Y-%m-%dT%H:%M:%SZ")
    new = [
        ExcludedNode(name=name, reason=(pods[-1].problem or _UNNAMED).reason[:128], since=since)
        for name, pods in sorted(_refusing(situation).items())
        if name not in known
    ]
    return replace(facts, excluded_nodes=tuple([*kept, *new][-_MOST_NODES:]))


def next_try(situation: Situation, facts: Facts) -> float | None:
    """Seconds until a node may be tried again: one that refuses, or an excluded one."""
    if _serve_apart(situation):
        return min((_fresh_for(situation, pods) for pods in _refusing(situation).values()), default=None)
    return min((_left(situation, node) for node in facts.excluded_nodes), default=None)


def servers_held(situation: Situation) -> int | None:
    """So many servers and no more, while a node refuses further ones and others are at work."""
    refusing = set(_refusing(situation)) - {node.name for node in situation.facts.excluded_nodes}
    server = situation.serving.apart
    if not refusing or not _serve_apart(situation) or server is None:
        return None
    return min(len(situation.endpoints), server.replicas)


def rejection_problem(situation: Situation) -> Problem | None:
    """Which nodes refuse the run's servers, and what is said of the others."""
    excluded = {node.name: node.reason for node in situation.facts.excluded_nodes}
    for name, pods in _refusing(situation).items():
        said = pods[-1].problem or _UNNAMED
        excluded[name] = f"{said.reason}: {said.message}"
    if not excluded:
        return None
    nodes = "; ".join(f"node {name} refused server pods ({reason})" for name, reason in excluded.items())
    waiting = next((pod.problem for pod in _pods(situation) if not pod.ended and pod.problem), None)
    others = f"; elsewhere: {waiting.message}" if waiting is not None else ""
    return Problem(NODE_REJECTS, f"{nodes}, so they are kept away from it for a while{others}")


def attempt_problem(situation: Situation, job: ObservedJob) -> Problem | None:
    """What keeps a worker's attempt from working now; where nodes refuse its pod, which ones do."""
    if situation.serving.beside is None or any(pod.node for pod in job.live_pods):
        return job.current_problem
    youngest = job.youngest_pod
    refused = youngest.problem if youngest is not None and youngest.rejected else None
    problem = job.current_problem or refused
    return (rejection_problem(situation) or problem) if problem is not None else None


def refused_for_good(situation: Situation, job: ObservedJob) -> Problem | None:
    """What a node said that refuses an attempt's pods and is left out; None while the attempt may succeed.

    The Job's template cannot be edited, so that its next pod might be placed there again.
    """
    left_out = {node.name for node in situation.facts.excluded_nodes} | set(_refusing(situation))
    refused = [pod for pod in job.pods if pod.rejected and pod.node in left_out]
    works = any(
        pod.started or (pod.node and pod.node not in left_out) for pod in job.pods if not pod.rejected
    )
    if situation.serving.beside is None or not refused or works:
        return None
    return refused[-1].problem or _UNNAMED


def is_tried_again(situation: Situation, job: ObservedJob) -> bool:
    """Whether a node refused the pod of an attempt, and its Job makes another one after a while."""
    pod = job.youngest_pod
    is_refused = pod is not None and pod.rejected and bool(pod.node)
    is_active = job.state is JobState.ACTIVE and not job.deleting
    return situation.serving.beside is not None and is_refused and is_active


def rejected_to_clean(situation: Situation) -> tuple[ObservedPod, ...]:
    """Refused pods beyond the few that show what is wrong; none is needed once that is recorded.

    Those of a Job go with it.
    """
    if situation.serving.beside is not None:
        return ()
    recorded = {node.name for node in situation.facts.excluded_nodes}
    found: list[ObservedPod] = []
    for node, pods in _rejected(situation).items():
        fresh = [pod for pod in pods if _is_fresh(situation, pod)]
        needed = [] if node in recorded else fresh[-REJECTIONS:]
        found += [pod for pod in pods if pod not in needed]
    return tuple(pod for pod in found if not pod.deleting)


_UNNAMED = Problem("PodRejected", "the node gave no reason")


def _serve_apart(situation: Situation) -> bool:
    """Whether servers that stand apart from the workers are at work."""
    return situation.serving.apart is not None and bool(situation.endpoints)


def _pods(situation: Situation) -> tuple[ObservedPod, ...]:
    """Pods with a server in them."""
    if situation.serving.beside is None:
        return situation.seen.servers.pods
    return tuple(pod for job in situation.seen.workers for pod in job.pods)


def _rejected(situation: Situation) -> dict[str, list[ObservedPod]]:
    """Refused pods with a server by node, oldest first."""
    by_node: dict[str, list[ObservedPod]] = defaultdict(list)
    for pod in sorted(_pods(situation), key=lambda pod: pod.created):
        if pod.rejected and pod.node:
            by_node[pod.node].append(pod)
    return by_node


def _refusing(situation: Situation) -> dict[str, list[ObservedPod]]:
    fresh = {
        node: [pod for pod in pods if _is_fresh(situation, pod)]
        for node, pods in _rejected(situation).items()
    }
    return {node: pods for node, pods in fresh.items() if len(pods) >= REJECTIONS}


def _is_fresh(situation: Situation, pod: ObservedPod) -> bool:
    """Whether its refusal still says something about the node."""
    return situation.now - pod.created < EXCLUDED_FOR


def _fresh_for(situation: Situation, pods: list[ObservedPod]) -> float:
    """Seconds until too few of a node's refusals are fresh."""
    end = pods[-REJECTIONS].created + EXCLUDED_FOR
    return max(0.0, (end - situation.now).total_seconds())


def _left(situation: Situation, node: ExcludedNode) -> float:
    return max(0.0, (parse_time(node.since) + EXCLUDED_FOR - situation.now).total_seconds())
