"""What a rule is given, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from draftmill_api.base import ApiModel
from draftmill_api.progress import Progress
from draftmill_api.v1alpha1.lifecycle import RunSpec
from draftmill_api.v1alpha1.runstatus import Attempts
from draftmill_api.v1alpha1.shared import Endpoint
from draftmill_api.v1alpha1.status import Phase
from draftmill_api.v1alpha1.upstream import RunInput
from draftmill_operator.decide.facts import Facts
from draftmill_operator.kinds.base import AnyKind, AnyRun, Finished, Serving
from draftmill_operator.observe.types import Observed, ObservedJob, Problem
from draftmill_operator.run import Role


@dataclass(frozen=True)
class Worker:
    """One worker: what is recorded of its tries, and the newest of them."""

    record: Attempts
    job: ObservedJob | None
    """Its youngest attempt that was started with what the workers are started with now."""
    of: int
    """How many workers there are."""

    @property
    def index(self) -> int:
        """Its number among the workers, from 0."""
        return self.record.worker

    @property
    def share(self) -> str:
        """Its share of the rows: `0/3`."""
        return f"{self.index}/{self.of}"

    @property
    def living(self) -> ObservedJob | None:
        """The youngest attempt, unless its failure is recorded or it is going away."""
        if self.job is None or self.job.deleting or self.job.attempt <= self.record.last_failed_attempt:
            return None
        return self.job

    @property
    def is_missing(self) -> bool:
        """It has work left, and nothing that does it."""
        return not self.record.succeeded and self.living is None


@dataclass(frozen=True)
class Situation:
    """Everything that a decision depends on."""

    kind: AnyKind
    run: AnyRun
    seen: Observed
    endpoints: tuple[Endpoint, ...]
    """Where workers find servers now: Ready pods of the current template, those that the spec names, or the
    one in their own pod."""
    host_path_prefixes: tuple[str, ...]
    now: datetime

    @property
    def spec(self) -> RunSpec:
        """What the run shall do."""
        return self.run.spec

    @cached_property
    def serving(self) -> Serving:
        """Which servers the workers ask."""
        return self.kind.serving(self.spec)

    @property
    def lacks_servers(self) -> bool:
        """Whether there should be servers apart from the workers, and none answers."""
        return self.serving.apart is not None and not self.endpoints

    @cached_property
    def facts(self) -> Facts:
        """What is recorded, brought to the workers that the spec wants now."""
        spec, seen = self.spec, {job.worker: job.attempt for job in self.seen.workers}
        return Facts.of(self.run.status).for_workers(
            self.kind.workers(spec), self.kind.workers_hash(spec), spec.restart or "", seen
        )

    @cached_property
    def workers(self) -> tuple[Worker, ...]:
        """All workers, in the order of their indices."""
        return tuple(self._worker(record) for record in self.facts.attempts)

    @cached_property
    def progress(self) -> Mapping[int, Progress]:
        """What workers say whose share of the rows is one of those that there are now, by their index."""
        shares = {worker.index: worker.share for worker in self.workers}
        return {
            index: answer
            for index, answer in self.seen.progress.items()
            if answer.worker == shares.get(index)
        }

    @cached_property
    def outdated_jobs(self) -> tuple[ObservedJob, ...]:
        """Attempts that were started with something else than workers are started with now."""
        return tuple(job for job in self.seen.workers if not self._is_current(job))

    def _worker(self, record: Attempts) -> Worker:
        jobs = (job for job in self.seen.workers if job.worker == record.worker)
        current = [job for job in jobs if self._is_current(job)]
        return Worker(
            record=record,
            job=max(current, key=lambda job: job.attempt, default=None),
            of=len(self.facts.attempts),
        )

    def _is_current(self, job: ObservedJob) -> bool:
        return job.workers_hash in {"", self.facts.workers_hash}


@dataclass(frozen=True)
class Wanted:
    """Children that shall exist; an unfinished one that is not wanted is deleted."""

    config: bool = False
    plan: bool = False
    servers: bool = False
    replicas: int | None = None
    """Fewer servers than the spec asks for; None is what it asks for."""
    keep_servers: bool = False
    """Servers that are there stay, as they are; none is made."""
    workers: Mapping[int, int] = field(default_factory=dict)
    """Number of the attempt of each worker that shall run."""
    evaluation: Role | None = None
    """The step of an evaluation that is at work."""
    finish: bool = False


@dataclass(frozen=True)
class Decision:
    """What shall be, and what has been learnt."""

    phase: Phase
    wanted: Wanted = field(default_factory=Wanted)
    redo: Role | None = None
    """A step whose result was lost: its Job is deleted, a later pass starts it again."""
    problem: Problem | None = None
    """What keeps the run from going on, or why it ended."""
    warning: Problem | None = None
    """What deserves a look though the run goes on."""
    facts: Facts | None = None
    """New facts to record."""
    bound: RunInput | None = None
    """The input to record: what an earlier run published."""
    plan: ApiModel | None = None
    """A plan to record."""
    doing: str = ""
    """What is at work, where the phase does not say it."""
    completed: Finished | None = None
    """The run's result: it is Complete."""
    failed: Problem | None = None
    """The run is Failed for good."""
    remove_run: bool = False
    """Its time after the end is over: the run itself is deleted."""
    requeue_after: float | None = None
    """Seconds until the next look, where no event will call for one."""

    def kept_from(self, role: Role) -> tuple[str, ...]:
        """Names of the nodes that pods of a role are kept away from."""
        return self.facts.kept_from(role) if self.facts is not None else ()


Rule = Callable[[Situation], Decision | None]
