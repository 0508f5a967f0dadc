"""DrafterTrain objects, and what their jobs say."""

from __future__ import annotations

import copy
from typing import Any

from draftmill_api.progress import Progress, TerminationMessage, WorkerResult, WorkerState
from draftmill_api.trainjob import TrainFinishResult
from draftmill_api.v1alpha1.draftertrain import TrainEvaluation, TrainPlan, TrainProgress, Yardstick
from draftmill_api.v1alpha1.trainstatus import EvaluatedRate
from tests.support.played import FACTS
from tests.support.synthruns import Manifest

LAYERS = [2, 15, 27]
_SPEC: Manifest = {
    "from": {"extractRun": {"name": "k25-10k"}},
    "scratch": {"draftVocabSize": 32000},
    "output": {"path": "drafters/k25"},
}


def smallest_drafter_train(name: str) -> Manifest:
    """A DrafterTrain with nothing but the fields that must be given."""
    return {
        "apiVersion": "draftmill.dev/v1alpha1",
        "kind": "DrafterTrain",
        "metadata": {"name": name},
        "spec": copy.deepcopy(_SPEC),
    }


def train_plan(steps: int) -> TrainPlan:
    """What a plan found that comes to so many steps."""
    return TrainPlan(
        model=FACTS,
        layer_ids=LAYERS,
        rows=190,
        tokens=190_000,
        longest_row=2000,
        held_out_rows=10,
        yardstick=Yardstick.ACCEPTANCE_LENGTH,
        steps=steps,
        draft_vocabulary_size=32000,
        vllm="drafter/vllm",
        sglang="drafter/sglang",
        parameters=20_000_000,
        bytes_needed=1 << 30,
        bytes_free=1 << 40,
        input_sha256="c" * 64,
    )


def train_progress(step: int, total: int, saved_step: int = 0) -> TrainProgress:
    """Progress after so many steps."""
    return TrainProgress(
        epoch=1, step=step, total=total, saved_step=saved_step, loss="2.31", acceptance_length="1.9"
    )


def trainer_says(step: int, total: int, saved_step: int = 0, **rest: Any) -> Progress:
    """What the first rank says at `/progress`."""
    rates = {"tokens_per_second": 5200, "data_wait": "0.4", "eta": "12m"}
    said = {"state": WorkerState.RUNNING, "config_hash": "c"} | rest
    return Progress(**said, training=train_progress(step, total, saved_step).model_copy(update=rates))


def train_plan_message(steps: int) -> TerminationMessage:
    """The last words of a plan."""
    return TerminationMessage(train_plan=train_plan(steps))


def trainer_message(step: int, total: int) -> TerminationMessage:
    """The last words of the first rank."""
    return TerminationMessage(worker=WorkerResult(training=train_progress(step, total, saved_step=step)))


def train_evaluation() -> TrainEvaluation:
    """What servers made of a drafter."""
    return TrainEvaluation(
        acceptance_length="2.41",
        by_position=["0.731", "0.442", "0.237"],
        ratio="1.62",
        cycles=1180,
        tokens=2844,
        answers=32,
        identical=32,
        rates=[EvaluatedRate(concurrency=1, plain="41.0", drafting="66.4", ratio="1.62")],
    )


def train_finish_message(steps: int, evaluation: TrainEvaluation | None = None) -> TerminationMessage:
    """The last words of a finish."""
    return TerminationMessage(
        train_finish=TrainFinishResult(
            progress=train_progress(steps, steps, saved_step=steps),
            vllm="/data/drafters/k25/drafter/vllm",
            sglang="/data/drafters/k25/drafter/sglang",
            steps=steps,
            acceptance_length="2.87",
            evaluation=evaluation,
            manifest="/data/drafters/k25/manifest.json",
            manifest_sha256="d" * 64,
        )
    )
