"""What a trainer knows of its progress: one place that log line, `/progress` and result read."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from draftmill_api.drafter import DrafterAcceptance
from draftmill_api.progress import Progress, WorkerState
from draftmill_api.v1alpha1.trainstatus import TrainProgress, Yardstick
from draftmill_jobs.shared.formats import clock_time, short_time, two_digits
from draftmill_jobs.shared.rates import Rates
from draftmill_jobs.train.checkpoint import TrainState, checkpoint_name
from draftmill_jobs.train.folders import CHECKPOINTS
from draftmill_jobs.train.loop import StepReport
from draftmill_jobs.train.training import Beginning

_LATELY: Final = 20  # steps over which the loss is averaged

_NAMES: Final = {
    Yardstick.ACCEPTANCE_LENGTH: "simulated acceptance length",
    Yardstick.TEACHER_AGREEMENT: "teacher agreement (sampled answers: no acceptance length)",
}


@dataclass
class Board:
    """Figures and state of the first rank.

    Attributes:
        started: Monotonic seconds.
    """

    run_uid: str
    worker: str
    attempt: int
    started: float
    config_hash: str
    state: WorkerState = WorkerState.WAITING
    message: str = ""
    _training: TrainState | None = None
    _total: int = 0
    _coverage: float = 0.0
    _report: StepReport | None = None
    _measured: DrafterAcceptance | None = None
    _saved: int = 0
    _losses: deque[float] = field(default_factory=lambda: deque(maxlen=_LATELY))
    _rates: Rates = field(default_factory=Rates)

    def say(self, message: str) -> None:
        """What it waits for, in a sentence."""
        self.message = message

    def begun(self, beginning: Beginning, now: float) -> None:
        """The first step is next."""
        self.state, self.message = WorkerState.RUNNING, ""
        self._training, self._total, self._coverage = beginning.state, beginning.total, beginning.coverage
        self._measured, self._saved = beginning.state.best, beginning.state.step
        self._rates.sample(now, beginning.state.step, beginning.state.tokens)

    def stepped(self, report: StepReport, now: float) -> None:
        """A step is done."""
        self._report, self._training, self._saved = report, report.state, report.saved_step
        self._losses.append(sum(report.losses) / len(report.losses))
        if report.evaluation is not None:
            self._measured = report.evaluation.measured()
        self._rates.sample(now, report.state.step, report.state.tokens)

    def saved(self, state: TrainState) -> None:
        """The training has ended, or was told to, and is saved as it is."""
        self._training, self._saved = state, state.step

    def rates(self, now: float) -> tuple[float, float]:
        """Steps and tokens a second over the last minutes."""
        if self._training is None:
            return 0.0, 0.0
        steps, tokens = self._rates.of(now, self._training.step, self._training.tokens)
        return steps, tokens

    def eta(self, now: float) -> float | None:
        """Seconds to the end at the present rate; None when there is no rate."""
        steps, _ = self.rates(now)
        done = self._training.step if self._training else 0
        return (self._total - done) / steps if steps > 0 else None

    def train_progress(self, now: float) -> TrainProgress:
        """Figures and rates."""
        training, report = self._training, self._report
        if training is None:
            return TrainProgress()
        settled = settled_progress(
            training, epoch=report.epoch + 1 if report else 0, total=self._total, coverage=self._coverage
        )
        running = self.state is WorkerState.RUNNING
        (_, rate), eta = self.rates(now), self.eta(now)
        return settled.model_copy(
            update={
                "saved_step": self._saved,
                "loss": f"{sum(self._losses) / len(self._losses):.3f}" if self._losses else "",
                "acceptance_length": _length(self._measured, Yardstick.ACCEPTANCE_LENGTH),
                "teacher_agreement": _length(self._measured, Yardstick.TEACHER_AGREEMENT),
                "tokens_per_second": int(float(two_digits(rate))) if running and rate else None,
                "data_wait": two_digits(100 * report.data_wait) if running and report else "",
                "eta": clock_time(eta) if running and eta is not None else "",
            }
        )

    def progress(self, now: float) -> Progress:
        """What `/progress` answers."""
        return Progress(
            run_uid=self.run_uid,
            worker=self.worker,
            attempt=self.attempt,
            state=self.state,
            config_hash=self.config_hash,
            training=self.train_progress(now),
            message=self.message[:1024],
        )

    def line(self, now: float) -> str:
        """The progress line of the log."""
        report = self._report
        if report is None:
            return f"Progress: 0/{self._total} steps"
        eta, (_, rate) = self.eta(now), self.rates(now)
        return (
            f"Progress: step {report.step}/{report.total}, epoch {report.epoch + 1}, loss by step "
            f"{' '.join(f'{loss:.4f}' for loss in report.losses)}, {_measured(self._measured)}"
            f"learning rate {report.learning_rate:.2e}, gradient {report.gradient_norm:.3f}, "
            f"{rate:.0f} tok/s, data wait {100 * report.data_wait:.1f} %, "
            f"elapsed: {short_time(now - self.started)}, ETA: {'unknown' if eta is None else short_time(eta)}"
        )


def settled_progress(state: TrainState, *, epoch: int, total: int, coverage: float) -> TrainProgress:
    """What a checkpoint says of how far its training is; its best evaluation stands for the last one."""
    return TrainProgress(
        epoch=epoch,
        step=state.step,
        total=total,
        saved_step=state.step,
        acceptance_length=_length(state.best, Yardstick.ACCEPTANCE_LENGTH),
        teacher_agreement=_length(state.best, Yardstick.TEACHER_AGREEMENT),
        best=f"{state.best.length:.2f}" if state.best else "",
        best_step=state.best_step,
        best_checkpoint=f"{CHECKPOINTS}/{checkpoint_name(state.best_step)}" if state.best_step else "",
        tokens=state.tokens,
        corrupt_rows=len(state.corrupt),
        coverage=f"{100 * coverage:.1f}",
    )


def evaluation_line(measured: DrafterAcceptance, step: int) -> str:
    """What an evaluation says, for the log."""
    return (
        f"After step {step}: {_NAMES[measured.yardstick]} {measured.length:.3f} over "
        f"{measured.cycles} cycles, "
        f"accepted by position {_shares(measured.by_position)}, accuracy by step {_shares(measured.accuracy)}"
    )


def _measured(last: DrafterAcceptance | None) -> str:
    """What the last evaluation said, within a line."""
    if last is None:
        return ""
    return f"last {_NAMES[last.yardstick]} {last.length:.3f}, accuracy by step {_shares(last.accuracy)}, "


def _shares(found: Iterable[float]) -> str:
    return " ".join(f"{share:.3f}" for share in found)


def _length(measured: DrafterAcceptance | None, yardstick: Yardstick) -> str:
    return f"{measured.length:.2f}" if measured is not None and measured.yardstick is yardstick else ""
