"""What a training is told, in numbers: the job's config with every default of its start settled."""

from __future__ import annotations

import math

from pydantic import Field

from draftmill_api.base import ApiModel
from draftmill_api.trainjob import JobInit, TrainJobConfig
from draftmill_api.v1alpha1.draftertrain import ExportLayerIds, LearningRateSchedule, Precision, Scratch


class Training(ApiModel):
    """How to train. Lengths and tokens are of one optimiser step over all ranks."""

    epochs: int = Field(default=5, ge=1)
    learning_rate: float = Field(default=2e-5, gt=0)
    schedule: LearningRateSchedule = LearningRateSchedule.COSINE
    warmup_steps: int = Field(default=50, ge=0)
    ttt_length: int = Field(default=4, ge=1, le=16, description="Steps of training-time test.")
    ttt_decay: float = Field(
        default=1.0, gt=0, le=1, description="Weight of a step, by that of the one before."
    )
    tokens_per_batch: int = Field(default=16384, ge=1)
    max_row_tokens: int | None = Field(default=None, ge=4, description="Longer rows are cut from the right.")
    gradient_clip: float = Field(default=0.5, gt=0)
    precision: Precision = Precision.BFLOAT16
    seed: int = 0
    l2_to_init: float = Field(default=0.0, ge=0, description="Pull of the weights to where they started.")
    noise: float = Field(
        default=0.0, ge=0, description="Half the width of uniform noise on the target's states."
    )
    held_out_percent: float = Field(default=5.0, ge=0, lt=100)
    save_every_steps: int = Field(default=500, ge=1)
    keep_checkpoints: int = Field(default=2, ge=1)


class TrainConfig(ApiModel):
    """One training: exactly one of init and scratch."""

    CALLED = "training"
    EXACTLY_ONE_OF = ("init", "scratch")

    target: str = Field(description="Folder of the target model.")
    output: str = Field(description="Folder for checkpoints and the drafter.")
    init: JobInit | None = None
    scratch: Scratch | None = None
    training: Training = Field(default_factory=Training)
    export: ExportLayerIds = Field(default_factory=ExportLayerIds)


def settings_of(config: TrainJobConfig) -> TrainConfig:
    """What a job's config says."""
    told = config.training
    return TrainConfig(
        target=config.target.path,
        output=config.output.path,
        init=config.init,
        scratch=config.scratch,
        training=Training(
            epochs=told.epochs,
            learning_rate=config.learning_rate,
            schedule=told.schedule,
            warmup_steps=told.warmup_steps,
            ttt_length=config.ttt_length,
            ttt_decay=config.ttt_decay,
            tokens_per_batch=told.tokens_per_batch,
            max_row_tokens=told.max_row_tokens,
            gradient_clip=float(told.gradient_clip),
            precision=told.precision,
            seed=told.seed,
            l2_to_init=float(told.l2_to_init),
            noise=float(told.noise_std) * math.sqrt(3),
            held_out_percent=config.held_out_percent,
            save_every_steps=config.checkpoint.every_steps,
            keep_checkpoints=config.checkpoint.keep,
        ),
        export=config.export.layer_ids,
    )
