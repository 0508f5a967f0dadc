"""What is recorded of a run in its status, and read back: the only memory that decisions have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from draftmill_api.v1alpha1.runstatus import AnyStatus, Attempts, ExcludedNode, Pause, RunClock, StepTries
from draftmill_operator.observe.evaluated import given_up
from draftmill_operator.observe.types import Problem


@dataclass(frozen=True)
class Facts:
    """Recorded facts; a decision carries the new ones."""

    attempts: tuple[Attempts, ...]
    """Of each worker, in the order of their indices."""
    workers_hash: str
    restart_served: str
    clock: RunClock
    pause: Pause | None
    excluded_nodes: tuple[ExcludedNode, ...]
    former: tuple[Attempts, ...] = ()
    """Of workers that there were before there were fewer: a number is never used for two attempts."""
    steps: tuple[StepTries, ...] = ()
    """Steps whose pods nodes refused until there was no other node to try."""
    unevaluated: Problem | None = None
    """Why the evaluation of what the workers made was given up."""

    @classmethod
    def of(cls, status: AnyStatus) -> Facts:
        """What the status has."""
        return cls(
            attempts=tuple(status.attempts),
            workers_hash=status.workers_hash,
            restart_served=status.restart_served,
            clock=status.clock or RunClock(),
            pause=status.pause,
            excluded_nodes=tuple(status.excluded_nodes),
            steps=tuple(status.steps),
            unevaluated=given_up(status),
        )

    def kept_from(self, role: str) -> tuple[str, ...]:
        """Names of the nodes that pods of a role are kept away from."""
        return tuple(node.name for node in self.excluded_nodes if node.role == role)

    def for_workers(self, count: int, workers_hash: str, restart: str, seen: Mapping[int, int]) -> Facts:
        """The facts for so many workers of this hash; `seen` has the highest attempt there is of each worker.

        An attempt that is seen was started, whether or not that could be recorded. Workers that were started
        with something else begin anew: their failures are forgotten, and so is their success, since the rows
        may fall to other workers now, and whether that could be evaluated. Only the numbers of attempts go
        on. A restart ends a pause too.
        """
        known = {index: Attempts(worker=index) for index in (*range(count), *seen)}
        known |= {record.worker: record for record in self.attempts}
        for index, attempt in seen.items():
            if attempt > known[index].count:
                known[index] = known[index].model_copy(update={"count": attempt})
        begin_anew = self.workers_hash not in {"", workers_hash}
        if begin_anew:
            known = {index: _begun_anew(record) for index, record in known.items()}
        records = [known[index] for index in sorted(known)]
        return replace(
            self,
            attempts=tuple(records[:count]),
            former=tuple(records[count:]),
            workers_hash=workers_hash,
            restart_served=restart,
            pause=self.pause if restart == self.restart_served else None,
            steps=() if begin_anew else self.steps,
            unevaluated=None if begin_anew else self.unevaluated,
        )

    def tried_again(self, role: str) -> int:
        """How often nodes were tried again that had refused pods of a step."""
        return next((step.tried_again for step in self.steps if step.role == role), 0)

    def with_another_try(self, role: str, job: str) -> Facts:
        """The facts once they are tried again, with another Job in place of the one of this uid."""
        steps = {step.role: step for step in self.steps}
        if role not in steps or steps[role].last_job != job:
            times = self.tried_again(role) + 1
            steps[role] = StepTries(role=role, tried_again=times, last_job=job)
        return replace(self, steps=tuple(steps.values()))

    def with_none_started(self, before: Facts) -> Facts:
        """The facts without attempts that were to be started and could not be."""
        counts = {record.worker: record.count for record in before.attempts}
        unchanged = (
            record.model_copy(update={"count": counts.get(record.worker, 0)}) for record in self.attempts
        )
        return replace(self, attempts=tuple(unchanged))

    def with_attempts(self, *changed: Attempts) -> Facts:
        """The facts with these records in place of the ones of the same workers."""
        new = {record.worker: record for record in changed}
        return replace(self, attempts=tuple(new.get(record.worker, record) for record in self.attempts))


def _begun_anew(record: Attempts) -> Attempts:
    return Attempts(worker=record.worker, count=record.count, last_failed_attempt=record.last_failed_attempt)
