"""What an extractor knows of its progress: one place that log line, `/progress` and result read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from draftmill_api.progress import Progress, WorkerState
from draftmill_api.v1alpha1.extractstatus import ExtractProgress
from draftmill_api.v1alpha1.status import Failure
from draftmill_jobs.shared.formats import byte_size, clock_time, short_time, two_digits
from draftmill_jobs.shared.rates import Rates


@dataclass
class Board:
    """Counts, rates and state of this worker; its rows are those of its share.

    Attributes:
        started: Monotonic seconds.
        total_tokens: Tokens of the rows to store.
        token_bytes: Bytes that a token takes in the store, about.
    """

    run_uid: str
    worker: str
    attempt: int
    started: float
    config_hash: str
    state: WorkerState = WorkerState.WAITING
    message: str = ""
    total: int = 0
    total_tokens: int = 0
    rows: int = 0
    tokens: int = 0
    bytes: int = 0
    quarantined: int = 0
    retried: int = 0
    in_flight: int = 0
    staged_bytes: Callable[[], int] = lambda: 0
    failures: Callable[[], list[Failure]] = list
    _rates: Rates = field(default_factory=Rates)

    def stored(self, tokens: int, size: int) -> None:
        """A row is in the store."""
        self.rows += 1
        self.tokens += tokens
        self.bytes += size

    @property
    def is_complete(self) -> bool:
        """Every row of the share is stored or given up."""
        return self.rows + self.quarantined == self.total

    def sample(self, now: float) -> None:
        """Takes a sample for the rates, about once a second while running."""
        if self.state is not WorkerState.RUNNING:
            self._rates.clear()
            return
        self._rates.sample(now, self.tokens)

    def rate(self, now: float) -> float:
        """Tokens per second over the last minutes of running."""
        (rate,) = self._rates.of(now, self.tokens)
        return rate

    def eta(self, now: float) -> float | None:
        """Seconds to the end at the present rate; None when there is no rate."""
        rate = self.rate(now)
        return max(0, self.total_tokens - self.tokens) / rate if rate > 0 else None

    def extract_progress(self, now: float) -> ExtractProgress:
        """Counts and rates."""
        running = self.state is WorkerState.RUNNING
        rate, eta = self.rate(now), self.eta(now)
        return ExtractProgress(
            rows=self.rows,
            total=self.total,
            tokens=self.tokens,
            bytes=self.bytes,
            size=byte_size(self.bytes),
            quarantined=self.quarantined,
            retried=self.retried,
            in_flight=self.in_flight,
            staged_bytes=self.staged_bytes(),
            tokens_per_second=int(float(two_digits(rate))) if running and rate else None,
            eta=clock_time(eta) if running and eta is not None else "",
        )

    def progress(self, now: float) -> Progress:
        """What `/progress` answers."""
        return Progress(
            run_uid=self.run_uid,
            worker=self.worker,
            attempt=self.attempt,
            state=self.state,
            config_hash=self.config_hash,
            extraction=self.extract_progress(now),
            failures=self.failures(),
            message=self.message[:1024],
        )

    def line(self, now: float) -> str:
        """The progress line of the log."""
        eta = self.eta(now)
        return (
            f"Progress: {self.rows}/{self.total} rows ({self.quarantined} quarantined), "
            f"{self.tokens} tokens, {byte_size(self.bytes)}, {self.rate(now):.0f} tok/s, "
            f"elapsed: {short_time(now - self.started)}, "
            f"ETA: {'unknown' if eta is None else short_time(eta)}"
        )
