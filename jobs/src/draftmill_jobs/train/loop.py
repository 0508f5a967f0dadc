"""The loop: batch after batch until all epochs are done, with checkpoints, evaluations and an orderly stop.

What a step does depends on step number, batch and weights alone. So a training that was stopped and resumed,
or runs on another number of ranks, does the same steps.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from draftmill_jobs.errors import JobFailedError
from draftmill_jobs.train.checkpoint import Checkpoints, TrainState
from draftmill_jobs.train.data import PackedBatch, Prefetcher, Reading, RowInfo
from draftmill_jobs.train.evaluation import Evaluation, Evaluator
from draftmill_jobs.train.optimiser import Optimiser, learning_rate
from draftmill_jobs.train.packing import Batch, Schedule, share_of
from draftmill_jobs.train.settings import Training
from draftmill_jobs.train.step import Unroller, step_weights
from draftmill_jobs.train.world import World

_MOST_CORRUPT: Final = 0.01  # share of rows that may be lost


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one optimiser step, or the evaluation after it, has to say.

    Attributes:
        step: Steps done.
        losses: Mean divergence of each step of training-time test, over all ranks.
        gradient_norm: Before clipping.
        data_wait: Share of the time since this process started that it waited for data.
        evaluation: When there was one after this step.
        state: Where the training is.
        saved_step: Of the newest checkpoint.
    """

    step: int
    total: int
    epoch: int
    losses: tuple[float, ...]
    learning_rate: float
    gradient_norm: float
    data_wait: float
    evaluation: Evaluation | None
    state: TrainState
    saved_step: int


@dataclass(frozen=True)
class Loop:
    """One training, ready to run.

    Attributes:
        rows: Of the store.
        schedule: Batches of rows to train on.
        held_out: Rows to evaluate on.
        should_stop: Asked before each step, in each process.
        report: Told after each step, in each process.
    """

    world: World
    settings: Training
    unroller: Unroller
    optimiser: Optimiser
    reading: Reading
    rows: tuple[RowInfo, ...]
    schedule: Schedule
    held_out: Batch
    evaluator: Evaluator
    checkpoints: Checkpoints
    should_stop: Callable[[], bool]
    report: Callable[[StepReport], None]

    def run(self, state: TrainState) -> tuple[TrainState, bool]:
        """Trains on from a state, whose weights and moments are in place.

        Returns:
            The state at the end, which is saved, and whether all steps are done.

        Raises:
            JobFailedError: More than one row in a hundred is corrupt, or the loss is no number.
        """
        positions, began, saved = self.schedule.positions, time.monotonic(), state.step
        feed = Prefetcher(self.reading, self._ahead(state.step))
        for batch in feed:
            stop, state, counts = self._agree(state, batch)
            if stop:
                self._save(state)
                return state, False
            at, rate = positions[state.step], learning_rate(self.settings, state.step, len(positions))
            losses, norm = self._step(batch, counts, rate)
            state, evaluation, is_saved = self._after(state.model_copy(update={"step": state.step + 1}))
            saved = state.step if is_saved else saved
            spent = max(time.monotonic() - began, 1e-9)
            self.report(
                StepReport(
                    step=state.step,
                    total=len(positions),
                    epoch=at.epoch,
                    losses=losses,
                    learning_rate=rate,
                    gradient_norm=norm,
                    data_wait=feed.waited / spent,
                    evaluation=evaluation,
                    state=state,
                    saved_step=saved,
                )
            )
        return state, True

    def _ahead(self, done: int) -> Iterator[tuple[Batch, int]]:
        """This process's part of the batches that are left, with their epochs."""
        lengths = [row.tokens for row in self.rows]
        for at in self.schedule.positions[done:]:
            batch = self.schedule.batch(at)
            yield share_of(batch, lengths, rank=self.world.rank, ranks=self.world.ranks), at.epoch

    def _agree(self, state: TrainState, batch: PackedBatch) -> tuple[bool, TrainState, list[int]]:
        """What all processes must know before a step: whether to stop, and how many positions are scored."""
        scored = [len(each) for each in batch.layout.scored]
        stop, lost, tokens, *counts = self.world.sums(
            [self.should_stop(), len(batch.corrupt), batch.tokens, *scored]
        )
        if stop:
            return True, state, []
        state = state.model_copy(update={"tokens": state.tokens + round(tokens)})
        if lost:
            state = self._without(state, self.world.union(batch.corrupt))
        return False, state, [round(count) for count in counts]

    def _without(self, state: TrainState, corrupt: Iterable[int]) -> TrainState:
        """Counts rows that cannot be used, each once."""
        found = sorted({*state.corrupt, *corrupt})
        if len(found) > _MOST_CORRUPT * len(self.rows):
            names = ", ".join(self.rows[row].key for row in found[:3])
            raise JobFailedError(
                "StoreCorrupt",
                f"{len(found)} of {len(self.rows)} rows are not what was written: {names}",
            )
        return state.model_copy(update={"corrupt": found})

    def _step(self, batch: PackedBatch, counts: list[int], rate: float) -> tuple[tuple[float, ...], float]:
        weights = step_weights(counts, self.settings.ttt_decay)
        device = self.world.device
        unrolled = self.unroller(batch.packed.to(device), batch.layout.to(device), weights)
        if unrolled.loss.requires_grad:
            unrolled.loss.backward()
        self.world.sum_gradients(self.optimiser.parameters)
        norm = self.optimiser.step(rate)
        sums = self.world.sums(unrolled.sums.tolist())
        losses = tuple(total / max(1, count) for total, count in zip(sums, counts, strict=True))
        if not math.isfinite(sum(losses) + norm):
            raise JobFailedError(
                "LossNotFinite", f"losses {losses}, gradient norm {norm}: lower the learning rate"
            )
        return losses, norm

    def _after(self, state: TrainState) -> tuple[TrainState, Evaluation | None, bool]:
        """Evaluates when an epoch has ended, and saves when it is time; says whether it did."""
        positions, evaluation = self.schedule.positions, None
        is_last = state.step == len(positions)
        has_ended = is_last or positions[state.step].batch == 0
        if has_ended and self.held_out:
            evaluation = self._evaluate()
            state = self._without(state, evaluation.corrupt)
            if state.best is None or evaluation.figure > state.best.length:
                best = {"best": evaluation.measured(), "best_step": state.step}
                state = state.model_copy(update=best)
        is_saved = has_ended or state.step % self.settings.save_every_steps == 0
        if is_saved:
            self._save(state)
        return state, evaluation, is_saved

    def _evaluate(self) -> Evaluation:
        batches = self.evaluator.batches(self.held_out, self.settings.tokens_per_batch, self.world)
        feed = Prefetcher(replace(self.reading, noise=0.0), ((batch, 0) for batch in batches))
        return self.evaluator.evaluate(feed, self.world)

    def _save(self, state: TrainState) -> None:
        """Saves, unless this step is saved already, or is the start."""
        if self.world.is_first and state.step and state.step not in self.checkpoints.steps():
            self.checkpoints.save(state, self.unroller.drafter.state_dict(), self.optimiser.moments())
