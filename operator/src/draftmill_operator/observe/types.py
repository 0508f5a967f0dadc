"""What a pass sees of a run's children."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, auto

from draftmill_api.exitcode import ExitCode
from draftmill_api.names import SERVER_PORT
from draftmill_api.progress import Progress, TerminationMessage
from draftmill_api.v1alpha1.shared import Endpoint, Engine
from draftmill_api.v1alpha1.upstream import RunInput
from draftmill_operator.render.defaults import FrozenDefaults
from draftmill_operator.run import Role, RunKey


@dataclass(frozen=True)
class Problem:
    """Something that keeps a run from going on, with the words of whoever found it."""

    reason: str
    """One CamelCase word."""
    message: str


@dataclass(frozen=True)
class Termination:
    """The end of a container."""

    exit_code: int
    reason: str
    """The kubelet's word: Completed, Error, OOMKilled."""
    text: str
    """What the container left: its termination message, or the end of its log."""
    message: TerminationMessage | None
    """The text as a job's last words, if it is that."""

    def describe(self) -> str:
        """The end in one line: exit code, the kubelet's word where it says more, and the last words."""
        cause = f" ({self.reason})" if self.reason not in {"", "Error", "Completed"} else ""
        words = self.last_words()
        return f"exit code {self.exit_code}{cause}" + (f": {words}" if words else "")

    def last_words(self) -> str:
        """The refusal's sentence, or the last line of the log."""
        if self.message is not None:
            return self.message.refusal.message if self.message.refusal is not None else ""
        lines = [line.strip() for line in self.text.splitlines() if line.strip()]
        return lines[-1][:512] if lines else ""


@dataclass(frozen=True)
class ObservedPod:
    """One pod."""

    name: str
    uid: str
    ip: str
    created: datetime
    ended: bool
    """Its phase is Succeeded or Failed: it runs nothing any more."""
    ready: bool
    deleting: bool
    disrupted: bool
    """Evicted, preempted or drained: no fault of the job."""
    started: bool
    """A container of it has run."""
    running_since: datetime | None
    """When the container that runs now was started."""
    template_hash: str
    config_hash: str
    problem: Problem | None
    termination: Termination | None
    """How the container ended, if it is not running."""
    node: str = ""
    """The node that it is placed on; empty while it is not."""
    main_started: bool = False
    """What it holds its GPUs for has run: its server, or its own container where it has none."""
    rejected: bool = False
    """The node refused it: none of its containers ran."""
    cut_off: bool = False
    """Its containers were ready when the kubelet spoke last, and the control plane calls it not ready."""
    removal_due: datetime | None = None
    """When it should be gone, once it is being deleted."""
    server_ready: bool = False
    """The server beside its own container has started."""
    restarts: int = 0
    """How often its own container was started again in it."""
    last_end: Termination | None = None
    """How its own container ended before it was started again."""
    rank: int = 0
    """Its number among the pods of its Job that work as one."""
    finished: datetime | None = None
    """When its container ended."""
    server_restarts: int = 0
    """How often the server beside its own container was started again."""


class JobState(Enum):
    """What the Job controller says."""

    ACTIVE = auto()
    SUCCEEDED = auto()
    FAILED = auto()


@dataclass(frozen=True)
class ObservedJob:
    """One Job and its pods."""

    name: str
    uid: str
    attempt: int
    state: JobState
    deleting: bool
    created: datetime
    failed_pods: int
    """Pods that the Job controller has counted as failed."""
    lost_pod: bool
    """A pod of it was seen to vanish."""
    verdict: Problem | None
    """Why the Job controller gave up."""
    pods: tuple[ObservedPod, ...] = ()
    problem: Problem | None = None
    """Why it has no pod, if it has none."""
    worker: int = 0
    """Index of the worker whose attempt it is."""
    workers_hash: str = ""
    """What the workers of its time were started with."""
    succeeded_pods: int = 0
    """Pods that the Job controller has counted as succeeded."""
    together: bool = False
    """Its pods are ranks, which work as one: none goes on without the others, and the first one speaks."""
    avoided_nodes: tuple[str, ...] = ()
    """Nodes that its pods are kept away from."""
    suspended: bool = False
    """Someone else, a queue, holds it: its pods go, and it gets new ones when it is let go on."""

    @property
    def has_unseen_pods(self) -> bool:
        """Whether more ended pods are counted than seen: they are gone, or the watch of pods is late."""
        ended = [pod for pod in self.pods if pod.ended]
        well = sum(
            pod.termination is not None and pod.termination.exit_code == ExitCode.DONE for pod in ended
        )
        return self.succeeded_pods > well or self.failed_pods > len(ended) - well

    @property
    def live_pods(self) -> tuple[ObservedPod, ...]:
        """Pods that may still run something."""
        return tuple(pod for pod in self.pods if not pod.ended)

    @property
    def youngest_pod(self) -> ObservedPod | None:
        """The pod that was made last; of ranks, the one that speaks."""
        return max(self._speaking, key=lambda pod: pod.created, default=None)

    @property
    def last_termination(self) -> Termination | None:
        """The end of the youngest pod that ended; of ranks, of the one that speaks."""
        ends = [pod for pod in self._speaking if pod.termination is not None]
        return max(ends, key=lambda pod: pod.created).termination if ends else None

    @property
    def message(self) -> TerminationMessage | None:
        """The job's last words, if a pod still has them."""
        termination = self.last_termination
        return termination.message if termination is not None else None

    @property
    def _speaking(self) -> tuple[ObservedPod, ...]:
        return tuple(pod for pod in self.pods if pod.rank == 0)

    @property
    def current_problem(self) -> Problem | None:
        """What keeps it from working now."""
        return next((pod.problem for pod in self.live_pods if pod.problem is not None), self.problem)


@dataclass(frozen=True)
class ObservedServers:
    """The servers' Deployment and the pods of its current template."""

    exists: bool
    deleting: bool = False
    pods: tuple[ObservedPod, ...] = ()
    problem: Problem | None = None
    """Why pods are missing, as the Deployment says."""

    @property
    def current_problem(self) -> Problem | None:
        """What keeps a server from being ready; how an earlier one ended where nothing else is known."""
        alive = [pod.problem for pod in self.pods if not pod.ended]
        ended = [pod.problem for pod in self.pods if pod.ended]
        return next((problem for problem in (*alive, self.problem, *ended) if problem is not None), None)

    def endpoints(self, template_hash: str, engine: Engine) -> tuple[Endpoint, ...]:
        """Addresses of the Ready pods of the current template, in the order of their names."""
        return tuple(
            Endpoint(name=pod.name, url=f"http://{_host(pod.ip)}", engine=engine)
            for pod in sorted(self.pods, key=lambda pod: pod.name)
            if pod.ready and not pod.deleting and pod.ip and pod.template_hash == template_hash
        )


@dataclass(frozen=True)
class Upstream:
    """The earlier run whose output this one waits for, as it is now."""

    key: RunKey
    exists: bool = False
    published: RunInput | None = None
    """What it published, once it is Complete."""
    failure: Problem | None = None
    """Why it is Failed, if it is."""


@dataclass(frozen=True)
class Observed:
    """Everything a pass sees of one run."""

    defaults: FrozenDefaults | None = None
    config: str | None = None
    """Text of the job config in the cluster."""
    plan: ObservedJob | None = None
    finish: ObservedJob | None = None
    evaluations: Mapping[Role, ObservedJob] = field(default_factory=dict)
    """Steps of an evaluation."""
    said_of_evaluation: Mapping[Role, str] = field(default_factory=dict)
    """How far the youngest pod of such a step says that it is."""
    workers: tuple[ObservedJob, ...] = ()
    """Attempts of workers, in the order of their numbers."""
    stray_worker_pods: tuple[ObservedPod, ...] = ()
    """Pods of workers whose Job is gone."""
    stray_step_pods: tuple[ObservedPod, ...] = ()
    """Pods of a step whose Job is gone."""
    servers: ObservedServers = field(default_factory=lambda: ObservedServers(exists=False))
    progress: Mapping[int, Progress] = field(default_factory=dict)
    """Last answer of each worker's youngest pod, by the worker's index."""
    upstream: Upstream | None = None
    data_capacity: int | None = None
    """Bytes of the data volume's claim, where it has one that is bound; only while a plan is looked at."""
    known: Mapping[str, Progress] = field(default_factory=dict)
    """What each worker said last, in this attempt or an earlier one, by its share: `0/3`."""

    @property
    def jobs(self) -> tuple[ObservedJob, ...]:
        """All Jobs of the run."""
        steps = (self.plan, self.finish, *self.evaluations.values())
        return tuple(job for job in steps if job is not None) + self.workers

    @property
    def live_pods(self) -> tuple[ObservedPod, ...]:
        """Every pod of the run that may still run something."""
        others = (*self.servers.pods, *self.stray_worker_pods, *self.stray_step_pods)
        return (
            *(pod for job in self.jobs for pod in job.live_pods),
            *(pod for pod in others if not pod.ended),
        )


def _host(ip: str) -> str:
    host = f"[{ip}]" if ":" in ip else ip
    return f"{host}:{SERVER_PORT}"
