"""Status of a DrafterTrain: what its plan found, how far it is, what it published."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from draftmill_api.base import ApiModel
from draftmill_api.v1alpha1.extractstatus import LayerId
from draftmill_api.v1alpha1.runstatus import RunStatus
from draftmill_api.v1alpha1.status import Count, ModelFacts, Output, Sha256
from draftmill_api.v1alpha1.upstream import RunInput

Figure = Annotated[str, Field(max_length=16)]
"""A measured number as text, since the Kubernetes API has no floats; empty while there is none."""


class Yardstick(StrEnum):
    """What drafted tokens are compared with, and so what the result may be called."""

    ACCEPTANCE_LENGTH = "AcceptanceLength"
    """Tokens of answers at temperature 0: what a server would accept."""
    TEACHER_AGREEMENT = "TeacherAgreement"
    """The target's likeliest tokens along answers that were sampled: no server accepts by that."""


class TrainPlan(ApiModel):
    """What the plan found before any trainer was started."""

    model: ModelFacts = Field(description="Facts of the target.")
    layer_ids: list[LayerId] = Field(
        max_length=16, description='Layers whose states enter the drafter, "entering layer" convention.'
    )
    rows: Count = Field(description="Rows to train on.")
    tokens: Count = Field(description="Tokens of these rows, after the cut: of one epoch.")
    longest_row: Count = Field(description="Tokens of the longest of them, after the cut.")
    cut_rows: Count = Field(default=0, description="Rows longer than training.maxRowTokens.")
    held_out_rows: Count = Field(description="Rows that are kept for evaluation.")
    yardstick: Yardstick | None = Field(
        default=None, description="What held-out rows can show; none when none are held out."
    )
    steps: Count = Field(description="Optimiser steps of all epochs.")
    draft_vocabulary_size: Count = Field(description="Token ids that the drafter can say.")
    vllm: str = Field(max_length=64, description="Folder of the drafter for vLLM, below the output's.")
    sglang: str = Field(
        max_length=64, description="Folder for SGLang; the same one where one config fits both."
    )
    parameters: Count = Field(description="Trained weights.")
    bytes_needed: Count = Field(description="Bytes of the checkpoints that are kept and of the drafter.")
    bytes_free: Count = Field(description="Free bytes of the data volume.")
    input_sha256: Sha256 = Field(alias="inputSHA256", description="Hash of the store's manifest.")


class TrainProgress(ApiModel):
    """How far the training is."""

    epoch: Count = Field(default=0, description="Epoch that is being trained, from 1.")
    step: Count = Field(default=0, description="Optimiser steps done.")
    total: Count = Field(default=0, description="Optimiser steps of all epochs.")
    saved_step: Count = Field(default=0, description="Step of the newest checkpoint.")
    loss: Figure = Field(default="", description="Mean loss over the steps of training-time test, lately.")
    acceptance_length: Figure = Field(
        default="",
        description="Simulated acceptance length on held-out rows that were answered at temperature 0: "
        "1 + accepted draft tokens / cycles, with the bonus token. Empty where there are no such rows.",
    )
    teacher_agreement: Figure = Field(
        default="",
        description="The same count against the target's likeliest tokens, where every held-out answer was "
        "sampled: no acceptance length.",
    )
    best: Figure = Field(default="", description="The best of that figure so far.")
    best_step: Count | None = Field(default=None, description="Step after which it was measured.")
    best_checkpoint: str = Field(
        default="", max_length=64, description="Its checkpoint, relative to the output's folder."
    )
    tokens: Count = Field(default=0, description="Tokens trained on.")
    corrupt_rows: Count = Field(default=0, description="Rows left out because they are not what was stored.")
    coverage: Figure = Field(
        default="", description="Per cent of the answers' tokens that the drafter can say."
    )
    tokens_per_second: Count | None = Field(default=None, description="Tokens trained on per second.")
    data_wait: Figure = Field(default="", description="Per cent of the time that was spent waiting for data.")
    eta: str = Field(
        default="", max_length=16, description="Time to the end, two digits; empty when unknown."
    )


class EvaluatedRate(ApiModel):
    """Tokens per second at so many requests at a time."""

    concurrency: Count = Field(description="Requests at a time.")
    plain: Figure = Field(description="Tokens per second without the drafter.")
    drafting: Figure = Field(description="Tokens per second with it.")
    ratio: Figure = Field(description="With it over without it.")


class TrainEvaluation(ApiModel):
    """What servers made of the drafter, over all answers to held-out prompts."""

    acceptance_length: Figure = Field(
        description="1 + accepted draft tokens / cycles, with the bonus token, as the server counted."
    )
    by_position: list[Figure] = Field(
        max_length=16,
        description="Of each draft token, the share of cycles that took it; empty where the server does not "
        "tell.",
    )
    ratio: Figure = Field(description="Tokens per second with the drafter over those without it: the best.")
    cycles: Count = Field(description="Draft cycles.")
    tokens: Count = Field(description="Tokens of the answers with the drafter.")
    answers: Count = Field(description="Answers that were compared.")
    identical: Count = Field(description="Answers that are the same to the last token.")
    rates: list[EvaluatedRate] = Field(
        max_length=8,
        description="Speed with the drafter and without it.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["concurrency"]},
    )


class TrainOutput(Output):
    """What a finished DrafterTrain publishes."""

    vllm: str = Field(max_length=512, description="Folder of the drafter for vLLM, on the volume.")
    sglang: str = Field(
        max_length=512,
        description="Folder of the drafter for SGLang, on the volume; the same where one config fits both.",
    )
    steps: Count = Field(description="Optimiser steps after which the drafter was taken.")
    acceptance_length: Figure = Field(
        default="", description="Its simulated acceptance length, where that could be measured."
    )
    teacher_agreement: Figure = Field(
        default="", description="Its agreement with the target's likeliest tokens, where only that could."
    )
    draft_vocabulary_size: Count = Field(description="Token ids that it can say.")
    layer_ids: list[LayerId] = Field(max_length=16, description="Layers that it reads, as in the plan.")


class DrafterTrainStatus(RunStatus[TrainPlan, TrainProgress, TrainOutput]):
    """What the operator observed; written by it alone."""

    input: RunInput | None = Field(
        default=None, description="The earlier run that this one is bound to, since it was Complete."
    )
    evaluation: TrainEvaluation | None = Field(
        default=None, description="The drafter at work, once that was measured."
    )
