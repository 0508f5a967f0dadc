"""What a training is told."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from draftmill_api.base import ApiModel
from draftmill_jobs.train.layers import LayerIds


class LearningRateSchedule(StrEnum):
    """How the learning rate goes after the warm-up."""

    COSINE = "Cosine"
    LINEAR = "Linear"
    CONSTANT = "Constant"


class Precision(StrEnum):
    """In what the large products are computed; weights, moments, norms and loss are always float32."""

    FLOAT32 = "Float32"
    BFLOAT16 = "BFloat16"


class Scratch(ApiModel):
    """The shape of a drafter that starts from nothing; whatever is left out is the target's."""

    draft_vocab_size: int = Field(ge=1)
    hidden_size: int | None = Field(default=None, ge=1)
    intermediate_size: int | None = Field(default=None, ge=1)
    heads: int | None = Field(default=None, ge=1)
    kv_heads: int | None = Field(default=None, ge=1)


class Init(ApiModel):
    """A drafter to start from."""

    path: str = Field(description="Folder of a flat EAGLE-3 checkpoint, or one of speculators.")
    layer_ids: LayerIds | None = Field(default=None, description="What the layer ids of its config mean.")


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

    EXACTLY_ONE_OF = ("init", "scratch")

    store: str = Field(description="Folder of the hidden states.")
    target: str = Field(description="Folder of the target model.")
    output: str = Field(description="Folder for checkpoints and the drafter.")
    init: Init | None = None
    scratch: Scratch | None = None
    training: Training = Field(default_factory=Training)
    gpus_per_node: int = Field(default=0, ge=0)
