"""Whose a pod is. Labels can be copied with a pod; its owner is what the controllers wrote.

The limit: whoever may create pods in the namespace can also write an owner into them, and is believed.
Owners are looked up in the cache where it has them: Jobs. ReplicaSets are not watched, so a server's one is
known by its name, which begins with the Deployment's. A worker pod that lost its owner, because its Job was
deleted with `--cascade=orphan`, is not seen any more; the lock of the output folder keeps it apart from the
next attempt.
"""

from __future__ import annotations

from draftmill_operator.observe.store import (
    Kind,
    Object,
    Store,
    controller,
    controller_uid,
    run_of_child,
    run_uid,
)
from draftmill_operator.render.names import child_name
from draftmill_operator.run import Role, RunKey


def run_of_worker(store: Store, pod: Object) -> RunKey | None:
    """The run whose Job owns this pod; None if there is no such Job, or no such run."""
    uid, key = run_uid(pod), run_of_child(pod)
    run = store.run(key) if key is not None else None
    if run is None or run["metadata"]["uid"] != uid:
        return None
    jobs = (job for job in store.children(Kind.JOB, uid) if controller_uid(job) == uid)
    return key if controller_uid(pod) in {job["metadata"]["uid"] for job in jobs} else None


def was_of_job(run: RunKey, role: Role, pod: Object) -> bool:
    """Whether a Job of this role made this pod for the run, though the Job may be gone."""
    if role is Role.WORKER:
        return _controller_begins(pod, "Job", child_name(run, role))
    owner = controller(pod)
    return owner is not None and (owner["kind"], owner["name"]) == ("Job", child_name(run, role))


def is_of_deployment(run: RunKey, pod: Object) -> bool:
    """Whether a ReplicaSet of the run's Deployment made this pod."""
    return _controller_begins(pod, "ReplicaSet", child_name(run, Role.SERVER))


def _controller_begins(pod: Object, kind: str, name: str) -> bool:
    owner = controller(pod)
    return owner is not None and owner["kind"] == kind and owner["name"].startswith(f"{name}-")
