"""What is recorded of a run in its status, and read back: the only memory that decisions have."""

from __future__ import annotations

from dataclasses import dataclass, replace

from draftmill_api.v1alpha1.status import Attempts, ExcludedNode, Pause, RunClock, SynthRunStatus


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

    @classmethod
    def of(cls, status: SynthRunStatus) -> Facts:
        """What the status has."""
        return cls(
            attempts=tuple(status.attempts),
            workers_hash=status.workers_hash,
            restart_served=status.restart_served,
            clock=status.clock or RunClock(),
            pause=status.pause,
            excluded_nodes=tuple(status.excluded_nodes),
        )

    def for_workers(self, count: int, workers_hash: str, restart: str) -> Facts:
        """The facts for so many workers of this hash.

        Workers that were started with something else begin anew: their failures are forgotten, and so is
        their success, since the rows may fall to other workers now. Only the numbers of attempts go on.
        """
        known = {record.worker: record for record in self.attempts}
        records = [known.get(index, Attempts(worker=index)) for index in range(count)]
        if self.workers_hash not in {"", workers_hash}:
            records = [
                Attempts(
                    worker=record.worker, count=record.count, last_failed_attempt=record.last_failed_attempt
                )
                for record in records
            ]
        return replace(self, attempts=tuple(records), workers_hash=workers_hash, restart_served=restart)

    def with_attempts(self, *changed: Attempts) -> Facts:
        """The facts with these records in place of the ones of the same workers."""
        new = {record.worker: record for record in changed}
        return replace(self, attempts=tuple(new.get(record.worker, record) for record in self.attempts))
