"""What the worker knows of its progress: one place that log line, bar, `/progress` and result read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from draftmill_api.progress import Concern, Progress, ServerProgress, WorkerState
from draftmill_api.v1alpha1.status import ChosenConcurrency, RunProgress
from draftmill_jobs.generate.endpoints import EndpointState
from draftmill_jobs.generate.eta import Eta
from draftmill_jobs.generate.outlook import Outlook
from draftmill_jobs.generate.pace import Pace
from draftmill_jobs.shared.formats import clock_time, short_time, two_digits
from draftmill_jobs.shared.rates import Rates
from draftmill_jobs.shared.tally import FailureTally, Tally, sum_counts

_WARNING_LIMIT = 1024  # characters
_OUT = {EndpointState.STARTING.value, EndpointState.TRIPPED.value}


@dataclass
class Board:
    """Counts, rates and state of this worker.

    Attributes:
        started: Monotonic seconds.
        request_failures: Requests that brought no answer, by reason; most of their rows were asked again.
    """

    run_uid: str
    worker: str
    attempt: int
    started: float
    config_hash: str
    state: WorkerState = WorkerState.WAITING
    message: str = ""
    retried: int = 0
    in_flight: int = 0
    waiting: int = 0
    recent_errors: int = 0
    warning: str = ""
    concurrency: ChosenConcurrency | None = None
    servers: list[ServerProgress] = field(default_factory=list)
    tallies: list[Tally] = field(default_factory=list)
    failures: FailureTally = field(default_factory=FailureTally)
    request_failures: Counter[str] = field(default_factory=Counter)
    outlook: Outlook = field(default_factory=lambda: Outlook(Pace()))
    _rates: Rates = field(default_factory=Rates)

    @property
    def done(self) -> int:
        """Rows with a record."""
        return sum(tally.done for tally in self.tallies)

    @property
    def tokens(self) -> int:
        """Completion tokens in them."""
        return sum(tally.completion_tokens for tally in self.tallies)

    @property
    def is_complete(self) -> bool:
        """Every row is accounted for."""
        return all(tally.accounted == tally.total for tally in self.tallies)

    def sample(self, now: float) -> None:
        """Takes a sample for the rates, about once a second while running."""
        if self.state is not WorkerState.RUNNING:
            self._rates.clear()
            self.outlook.clear()
            return
        self._rates.sample(now, self.done, self.tokens)
        self.outlook.sample(now)

    def rates(self, now: float) -> tuple[float, float]:
        """Records and completion tokens per second over the last minutes of running."""
        records, tokens = self._rates.of(now, self.done, self.tokens)
        return records, tokens

    @property
    def eta(self) -> Eta | None:
        """Time to the end; None while it cannot be told, or nothing is sent."""
        return self.outlook.eta if self.state is WorkerState.RUNNING else None

    def run_progress(self, now: float) -> RunProgress:
        """Counts and rates of all datasets together."""
        counts = sum_counts(tally.progress() for tally in self.tallies)
        running = self.state is WorkerState.RUNNING
        requests, tokens = self.rates(now)
        eta = self.eta
        return RunProgress(
            **counts,
            retried=self.retried,
            in_flight=self.in_flight,
            concurrency=self.concurrency,
            requests_per_second=two_digits(requests) if running and requests else "",
            tokens_per_second=int(float(two_digits(tokens))) if running and requests else None,
            average_completion_tokens=counts["completion_tokens"] // counts["done"]
            if counts["done"]
            else None,
            eta=clock_time(eta.seconds) if eta is not None else "",
            eta_low=clock_time(eta.low) if eta is not None else "",
            eta_high=clock_time(eta.high) if eta is not None else "",
        )

    def progress(self, now: float) -> Progress:
        """What `/progress` answers."""
        return Progress(
            run_uid=self.run_uid,
            worker=self.worker,
            attempt=self.attempt,
            state=self.state,
            config_hash=self.config_hash,
            progress=self.run_progress(now),
            datasets=[tally.progress() for tally in self.tallies],
            servers=self.servers,
            waiting=self.waiting,
            failures=self.failures.most_common(),
            request_failures=dict(self.request_failures),
            message=self.message,
            recent_errors=self.recent_errors,
            warning="; ".join(words for _, words in self.concerns)[:_WARNING_LIMIT],
            concern=next((concern for concern, _ in self.concerns), Concern.ERRORS_FREQUENT),
        )

    @property
    def concerns(self) -> list[tuple[Concern, str]]:
        """What deserves a look, each in a sentence, the gravest first."""
        found = {
            Concern.LENGTH_BIAS: self.outlook.length_bias,
            Concern.ERRORS_FREQUENT: self.warning,
            Concern.SERVER_OUT: out_of(self.servers),
            Concern.LENGTHS_FELL: self.outlook.lengths_fell,
        }
        return [(concern, found[concern]) for concern in Concern if found[concern]]

    def short_line(self, now: float) -> str:
        """Progress for one line of a terminal."""
        run = self.run_progress(now)
        errors = f", {run.errors} errors" if run.errors else ""
        rates = f"{run.requests_per_second or 0} req/s, {run.tokens_per_second or 0} tok/s"
        eta = f"{run.eta} ({run.eta_low} to {run.eta_high})" if run.eta else "unknown"
        return f"{run.done}/{run.total}{errors}, {rates}, ETA {eta}"

    def line(self, now: float) -> str:
        """The progress line of the log."""
        requests, tokens = self.rates(now)
        done, eta = self.done, self.eta
        total = sum(tally.total for tally in self.tallies)
        errors = sum(tally.errors for tally in self.tallies)
        average = f"{self.tokens / done:.0f} tokens" if done else "none yet"
        return (
            f"Progress: {done}/{total} ({errors} errors), {requests:.1f} req/s, {tokens:.0f} tok/s, "
            f"avg completion: {average}, elapsed: {short_time(now - self.started)}, "
            f"ETA: {'unknown' if eta is None else _in_words(eta)}"
        )


def out_of(servers: Sequence[ServerProgress]) -> str:
    """Which servers get no rows while others do, and why, in a sentence; empty when all do, or none."""
    up = sum(server.state == EndpointState.UP.value for server in servers)
    out = [f"{server.name} ({server.problem})" for server in servers if server.state in _OUT]
    return f"{up} of {len(servers)} servers have rows, out are {', '.join(out)}" if up and out else ""


def _in_words(eta: Eta) -> str:
    return f"{short_time(eta.seconds)} ({short_time(eta.low)} to {short_time(eta.high)})"
