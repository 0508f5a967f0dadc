"""The config file of a DrafterTrain's jobs, and what they answer."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from draftmill_api.base import ApiModel
from draftmill_api.jobconfig import AbsolutePath, JobModel, JobOutput, JobRun
from draftmill_api.v1alpha1.draftertrain import (
    FROM_SCRATCH,
    WARM_START,
    Checkpoint,
    Export,
    Scratch,
    StartDefaults,
    Training,
    WrittenLayerIds,
)
from draftmill_api.v1alpha1.shared import Endpoint
from draftmill_api.v1alpha1.status import Sha256, VolumePath
from draftmill_api.v1alpha1.trainstatus import Figure, TrainEvaluation, TrainPlan, TrainProgress


class JobStore(ApiModel):
    """The hidden states: a folder with `manifest.json`, `index.jsonl` and shards."""

    path: AbsolutePath
    manifest: AbsolutePath | None = Field(
        default=None, description="Their manifest; manifest.json of the folder without it."
    )
    manifest_sha256: Sha256 | None = Field(
        default=None, alias="manifestSHA256", description="What the manifest has to be."
    )
    model_fingerprint: Sha256 | None = Field(
        default=None, description="Model that the states have to be of, besides the target itself."
    )


class JobInit(ApiModel):
    """A drafter to start from."""

    path: AbsolutePath
    layer_convention: WrittenLayerIds | None = None


class Served(StrEnum):
    """Which of an evaluation's two servers."""

    PLAIN = "plain"
    DRAFTING = "drafting"


class JobEvaluation(ApiModel):
    """Two servers of the target, which may run one after the other, and what they are asked."""

    plain: Endpoint = Field(description="One that does not draft.")
    drafting: Endpoint = Field(description="One with the drafter.")
    max_rows: int = Field(default=64, ge=1, description="Held-out prompts to ask.")
    max_tokens: int = Field(default=256, ge=1, description="Most tokens of an answer.")
    context_length: int | None = Field(
        default=None, ge=1, description="Longest sequence that both servers take, if that is known: see plan."
    )
    concurrency: list[Annotated[int, Field(ge=1)]] = Field(
        default=[1],
        min_length=1,
        max_length=8,
        description="Requests at a time, one after another.",
    )

    def of(self, served: Served) -> Endpoint:
        """One of the two."""
        return self.plain if served is Served.PLAIN else self.drafting


class TrainJobConfig(ApiModel):
    """Config of `draftmill plan`, `train` and `finish` for a DrafterTrain: exactly one of init, scratch."""

    CALLED = "training"
    EXACTLY_ONE_OF = ("init", "scratch")

    run: JobRun
    target: JobModel
    store: JobStore
    output: JobOutput
    init: JobInit | None = None
    scratch: Scratch | None = None
    training: Training = Field(default_factory=Training)
    nodes: int = Field(default=1, ge=1)
    gpus_per_node: int = Field(default=0, ge=0, description="0 is CPU; more without CUDA is refused.")
    checkpoint: Checkpoint = Field(default_factory=Checkpoint)
    held_out_percent: int = Field(default=5, ge=0, le=99)
    export: Export = Field(default_factory=Export)
    evaluation: JobEvaluation | None = Field(
        default=None, description="What `draftmill evaluate` does; finish takes its result along."
    )
    plan: TrainPlan | None = Field(
        default=None, description="What the plan found, for the steps after it; they make their own without."
    )

    @property
    def learning_rate(self) -> float:
        """The one in force: what the config says, or the default of its start."""
        return float(self.training.learning_rate or self._defaults.learning_rate)

    @property
    def ttt_length(self) -> int:
        """The one in force."""
        return self.training.ttt_length or self._defaults.ttt_length

    @property
    def ttt_decay(self) -> float:
        """The one in force."""
        return float(self.training.ttt_decay or self._defaults.ttt_decay)

    @property
    def _defaults(self) -> StartDefaults:
        return WARM_START if self.init is not None else FROM_SCRATCH


class TrainFinishResult(ApiModel):
    """What the finish found in the exported drafter."""

    progress: TrainProgress
    vllm: str = Field(max_length=512, description="Folder for vLLM, below the data volume in a pod.")
    sglang: str = Field(max_length=512, description="Folder for SGLang; the same one where one fits both.")
    steps: int = Field(ge=1, description="Optimiser steps after which the drafter was taken.")
    acceptance_length: Figure = ""
    teacher_agreement: Figure = ""
    evaluation: TrainEvaluation | None = Field(default=None, description="Where the config has one.")
    manifest: VolumePath = Field(description="Path of the manifest, below the data volume in a pod.")
    manifest_sha256: Sha256 = Field(alias="manifestSHA256")
