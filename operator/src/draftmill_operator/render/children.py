"""All children that a decision wants, in the order in which they are made."""

from __future__ import annotations

from dataclasses import dataclass

from draftmill_api.jobconfig import config_hash
from draftmill_operator.decide.types import Decision
from draftmill_operator.kinds.base import AnyKind, AnyRun
from draftmill_operator.render.config import render_config
from draftmill_operator.render.defaults import FrozenDefaults, render_defaults
from draftmill_operator.render.jobs import WORKER_BACKOFF_LIMIT, JobRequest, render_job
from draftmill_operator.render.metadata import Manifest
from draftmill_operator.render.ranks import ranks_service
from draftmill_operator.render.server import render_server, render_service, run_template
from draftmill_operator.run import Role


@dataclass(frozen=True)
class Surroundings:
    """What children are rendered with besides the run and the decision."""

    defaults: FrozenDefaults
    config: str
    """Text of the job config."""
    one_node_only: bool
    """The data volume can be mounted by one node at a time."""


def render_children(kind: AnyKind, run: AnyRun, decision: Decision, around: Surroundings) -> list[Manifest]:
    """Manifests of everything that shall exist: the frozen defaults first, the config before its readers."""
    defaults, config = around.defaults, around.config
    wanted, identity = decision.wanted, run.identity
    if not wanted.config:
        return []
    hash_in_force = config_hash(config)
    children = [render_defaults(identity, defaults), render_config(identity, config)]
    work, server, spec = kind.workload(run), kind.serving(run.spec).apart, run.spec

    def step(role: Role) -> JobRequest:
        return JobRequest(role, hash_in_force, spec.backoff_limit, excluded_nodes=decision.kept_from(role))

    if wanted.servers and server is not None:
        replicas = wanted.replicas if wanted.replicas is not None else server.replicas
        template = run_template(identity, work, server, defaults, decision.kept_from(Role.SERVER))
        children.append(render_server(identity, server, template, replicas))
        children.append(render_service(identity))
    if wanted.plan:
        children.append(render_job(identity, work, defaults, step(Role.PLAN)))
    if wanted.workers and work.ranks is not None:
        children.append(ranks_service(identity))
    for worker, attempt in sorted(wanted.workers.items()):
        request = JobRequest(
            Role.WORKER,
            hash_in_force,
            WORKER_BACKOFF_LIMIT,
            attempt,
            worker,
            on_one_node=around.one_node_only and work.workers * work.pods_of_a_worker > 1,
            excluded_nodes=decision.kept_from(Role.WORKER),
        )
        children.append(render_job(identity, work, defaults, request))
    if wanted.evaluation is not None:
        children.append(render_job(identity, work, defaults, step(wanted.evaluation)))
    if wanted.finish:
        children.append(render_job(identity, work, defaults, step(Role.FINISH)))
    return children
