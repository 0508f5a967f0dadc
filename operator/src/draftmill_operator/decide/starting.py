"""Which workers are started now, and what keeps the others from it."""

from __future__ import annotations

from dataclasses import dataclass, field

from draftmill_api.progress import WorkerState
from draftmill_operator.decide.attempts import remaining_delay
from draftmill_operator.decide.nodes import rejection_problem
from draftmill_operator.decide.removals import may_run
from draftmill_operator.decide.types import Situation, Worker
from draftmill_operator.observe.types import Problem
from draftmill_operator.run import Role

SERVERS_NOT_READY = "ServersNotReady"
WORKER_RESTARTING = "WorkerRestarting"
AT_WORK = {
    WorkerState.RUNNING,
    WorkerState.PAUSED,
    WorkerState.STORAGE_FULL,
    WorkerState.DRAINING,
    WorkerState.DONE,
}


@dataclass(frozen=True)
class Start:
    """What becomes of the workers that have work left and nothing that does it."""

    numbers: dict[int, int] = field(default_factory=dict)
    """The new attempt of each worker that starts."""
    problem: Problem | None = None
    """Why one of them does not start."""
    wait: float | None = None
    """Seconds until one of them may."""


def start(situation: Situation) -> Start:
    """A new attempt starts when servers answer, its delay is over, and nothing can still write its rows.

    Servers that are not apart from the workers are not waited for.
    """
    missing = [worker for worker in situation.workers if worker.is_missing]
    if not missing:
        return Start()
    if situation.lacks_servers:
        return Start(problem=server_problem(situation) or _no_server(situation))
    numbers: dict[int, int] = {}
    problem, wait = None, None
    for worker in missing:
        obstacle = _in_the_way(situation, worker)
        delay = remaining_delay(worker.record, situation.now)
        if obstacle is not None:
            problem = named(situation, worker, f"waiting for {obstacle}")
        elif delay > 0:
            problem = named(situation, worker, f"the last attempt failed: {worker.record.last_failure}")
            wait = delay if wait is None else min(wait, delay)
        else:
            numbers[worker.index] = worker.record.count + 1
    return Start(numbers, problem, wait)


def server_problem(situation: Situation) -> Problem | None:
    """What keeps a server from being ready."""
    return rejection_problem(situation, Role.SERVER) or situation.seen.servers.current_problem


def named(situation: Situation, worker: Worker, text: str) -> Problem:
    """A word about a worker, with its index where there are several."""
    several = len(situation.workers) > 1
    return Problem(WORKER_RESTARTING, f"worker {worker.index}: {text}" if several else text)


def has_worked(situation: Situation) -> bool:
    """Whether a worker is at work, or has been before."""
    shares = {worker.share for worker in situation.workers}
    said = [*situation.progress.values()]
    said += [answer for share, answer in situation.seen.known.items() if share in shares]
    return situation.run.status.progress is not None or any(answer.state in AT_WORK for answer in said)


def _no_server(situation: Situation) -> Problem | None:
    if not has_worked(situation):
        return None
    return Problem(SERVERS_NOT_READY, "no server is ready; the next attempt waits for one")


def _in_the_way(situation: Situation, worker: Worker) -> str | None:
    """What may still write this worker's rows: an attempt of its own, or one that had another share of them.

    A Job that is not gone may have a pod that the cache does not know yet.
    """
    own = (job for job in situation.seen.workers if job.worker == worker.index)
    jobs = [*own, *situation.outdated_jobs]
    pods = [pod for job in jobs for pod in job.live_pods]
    pods += [pod for pod in situation.seen.stray_worker_pods if not pod.ended]
    if pods:
        why = f": {pods[0].problem.message}" if pods[0].problem is not None else ""
        return f"pod {pods[0].name} to be gone{why}"
    return next((f"Job {job.name} to be gone" for job in jobs if job.deleting or may_run(job)), None)
