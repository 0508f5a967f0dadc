"""Which workers are started now, and what keeps the others from it."""

from __future__ import annotations

from dataclasses import dataclass, field

from draftmill_operator.decide.attempts import remaining_delay
from draftmill_operator.decide.nodes import rejection_problem
from draftmill_operator.decide.types import Situation, Worker
from draftmill_operator.observe.types import ObservedPod, Problem

SERVERS_NOT_READY = "ServersNotReady"
WORKER_RESTARTING = "WorkerRestarting"


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
    """A new attempt starts when a server answers, its delay is over, and nothing can still write its rows."""
    missing = [worker for worker in situation.workers if worker.is_missing]
    if not missing:
        return Start()
    if not situation.endpoints:
        return Start(problem=server_problem(situation) or _no_server(situation))
    numbers: dict[int, int] = {}
    problem, wait = None, None
    for worker in missing:
        pod = _in_the_way(situation, worker)
        delay = remaining_delay(worker.record, situation.now)
        if pod is not None:
            why = f": {pod.problem.message}" if pod.problem is not None else ""
            problem = named(situation, worker, f"waiting for pod {pod.name} to be gone{why}")
        elif delay > 0:
            problem = named(situation, worker, f"the last attempt failed: {worker.record.last_failure}")
            wait = delay if wait is None else min(wait, delay)
        else:
            numbers[worker.index] = worker.newest + 1
    return Start(numbers, problem, wait)


def server_problem(situation: Situation) -> Problem | None:
    """What keeps a server from being ready."""
    return rejection_problem(situation) or situation.seen.servers.current_problem


def named(situation: Situation, worker: Worker, text: str) -> Problem:
    """A word about a worker, with its index where there are several."""
    several = len(situation.workers) > 1
    return Problem(WORKER_RESTARTING, f"worker {worker.index}: {text}" if several else text)


def has_worked(situation: Situation) -> bool:
    """Whether a worker has been at work before."""
    return situation.run.status.progress is not None


def _no_server(situation: Situation) -> Problem | None:
    if not has_worked(situation):
        return None
    return Problem(SERVERS_NOT_READY, "no server is ready; the next attempt waits for one")


def _in_the_way(situation: Situation, worker: Worker) -> ObservedPod | None:
    """A pod that may still write this worker's rows: its own, or one that had another share of them."""
    own = (job for job in situation.seen.workers if job.worker == worker.index)
    pods = [pod for job in (*own, *situation.outdated_jobs) for pod in job.live_pods]
    pods += [pod for pod in situation.seen.stray_worker_pods if not pod.ended]
    return pods[0] if pods else None
