"""What a rule is given, and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from draftmill_api.progress import FinishResult, PlanResult
from draftmill_api.v1alpha1.shared import Endpoint
from draftmill_api.v1alpha1.status import Attempts, Phase
from draftmill_operator.observe.types import Observed, Problem
from draftmill_operator.run import Role, Run


@dataclass(frozen=True)
class Situation:
    """Everything that a decision depends on."""

    run: Run
    seen: Observed
    endpoints: tuple[Endpoint, ...]
    """Servers that answer now: Ready pods of the current template, or those that the spec names."""
    host_path_prefixes: tuple[str, ...]
    now: datetime

    @property
    def attempts(self) -> Attempts:
        """The recorded tries of the worker."""
        return self.run.status.attempts or Attempts()


@dataclass(frozen=True)
class Wanted:
    """Children that shall exist; an unfinished one that is not wanted is deleted."""

    config: bool = False
    plan: bool = False
    servers: bool = False
    worker: int | None = None
    """Number of the attempt."""
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
    attempts: Attempts | None = None
    """New record of the worker's tries."""
    plan: PlanResult | None = None
    """A plan to record."""
    completed: FinishResult | None = None
    """The run's result: it is Complete."""
    failed: Problem | None = None
    """The run is Failed for good."""
    requeue_after: float | None = None
    """Seconds until the next look, where no event will call for one."""


Rule = Callable[[Situation], Decision | None]
