"""Arithmetic of a DrafterTrain's progress."""

from __future__ import annotations

from collections.abc import Sequence

from draftmill_api.progress import Progress, WorkerResult
from draftmill_api.v1alpha1.draftertrain import TrainProgress
from draftmill_operator.kinds.base import Tally


class TrainTally(Tally[TrainProgress]):
    """Optimiser steps, and the rate at which they come; all ranks are one worker."""

    def of_answer(self, answer: Progress) -> TrainProgress:
        """What the trainer says."""
        return answer.training or TrainProgress()

    def of_result(self, result: WorkerResult) -> TrainProgress:
        """What the trainer said last."""
        return result.training or TrainProgress()

    def together(self, parts: Sequence[TrainProgress]) -> TrainProgress:
        """That of the only worker."""
        (progress,) = parts
        return progress

    def at_rest(self, progress: TrainProgress) -> TrainProgress:
        """Steps and figures without rates."""
        return progress.model_copy(update={"tokens_per_second": None, "data_wait": "", "eta": ""})

    def done(self, progress: TrainProgress) -> int:
        """Steps done."""
        return progress.step

    def accounted(self, progress: TrainProgress) -> int:
        """Steps that need not be done again: those up to the newest checkpoint."""
        return progress.saved_step
