"""All children that a decision wants, in the order in which they are made."""

from __future__ import annotations

from draftmill_api.jobconfig import config_hash
from draftmill_operator.decide.types import Decision
from draftmill_operator.render.config import render_config
from draftmill_operator.render.defaults import FrozenDefaults, render_defaults
from draftmill_operator.render.jobs import WORKER_BACKOFF_LIMIT, JobRequest, render_job
from draftmill_operator.render.metadata import Manifest
from draftmill_operator.render.server import render_server, render_service
from draftmill_operator.run import Role, Run


def render_children(run: Run, decision: Decision, defaults: FrozenDefaults, config: str) -> list[Manifest]:
    """Manifests of everything that shall exist: the frozen defaults first, the config before its readers."""
    wanted, spec, identity = decision.wanted, run.spec, run.identity
    if not wanted.config:
        return []
    hash_in_force = config_hash(config)
    children = [render_defaults(identity, defaults), render_config(identity, config)]
    if wanted.servers and spec.server is not None:
        children.append(render_server(identity, spec.model, spec.storage.models, spec.server, defaults))
        children.append(render_service(identity))
    if wanted.plan:
        request = JobRequest(Role.PLAN, hash_in_force, spec.backoff_limit)
        children.append(render_job(identity, spec, defaults, request))
    if wanted.worker is not None:
        request = JobRequest(Role.WORKER, hash_in_force, WORKER_BACKOFF_LIMIT, wanted.worker)
        children.append(render_job(identity, spec, defaults, request))
    if wanted.finish:
        request = JobRequest(Role.FINISH, hash_in_force, spec.backoff_limit)
        children.append(render_job(identity, spec, defaults, request))
    return children
