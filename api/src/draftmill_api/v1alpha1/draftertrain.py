"""DrafterTrain: trains an EAGLE-3 drafter on an ExtractRun's hidden states."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from draftmill_api.base import ApiModel, Fraction, NonNegativeNumber, PositiveNumber, Quantity, Rule
from draftmill_api.v1alpha1.evaluation import Evaluation
from draftmill_api.v1alpha1.lifecycle import RunSpec
from draftmill_api.v1alpha1.pod import PodOverrides, ResourceClaim
from draftmill_api.v1alpha1.shared import Model, RelativePath, Storage
from draftmill_api.v1alpha1.trainstatus import (
    DrafterTrainStatus,
    TrainEvaluation,
    TrainOutput,
    TrainPlan,
    TrainProgress,
    Yardstick,
)
from draftmill_api.v1alpha1.upstream import FromExtractRun


class WrittenLayerIds(StrEnum):
    """What the layer ids in a drafter's config mean."""

    ENTERING_LAYER = "EnteringLayer"
    """Id i is the stream before layer i."""
    OUTPUT_OF_LAYER = "OutputOfLayer"
    """Id i is the stream after layer i."""


class LearningRateSchedule(StrEnum):
    """How the learning rate goes after the warm-up."""

    COSINE = "Cosine"
    LINEAR = "Linear"
    CONSTANT = "Constant"


class Precision(StrEnum):
    """In what the large products are computed; weights, moments, norms and loss are always float32."""

    FLOAT32 = "Float32"
    BFLOAT16 = "BFloat16"


@dataclass(frozen=True)
class StartDefaults:
    """Settings whose default depends on what a training starts from."""

    learning_rate: str
    ttt_length: int
    ttt_decay: str


WARM_START: Final = StartDefaults(learning_rate="2e-5", ttt_length=4, ttt_decay="1")
FROM_SCRATCH: Final = StartDefaults(learning_rate="1e-4", ttt_length=7, ttt_decay="0.8")


def _depends(attribute: str) -> str:
    scratch, warm = getattr(FROM_SCRATCH, attribute), getattr(WARM_START, attribute)
    return f" {scratch} with scratch, {warm} with init, when left out."


class Init(ApiModel):
    """A drafter to start from. Its draft vocabulary, rope and eps are kept."""

    path: RelativePath = Field(
        description="Folder of an EAGLE-3 drafter below storage.models: the flat format, or that of "
        "speculators."
    )
    layer_convention: WrittenLayerIds | None = Field(
        default=None,
        description="What the layer ids of its config mean. When left out it follows from format and target, "
        "and the plan refuses ids that can be read both ways.",
    )


class Scratch(ApiModel):
    """The shape of a drafter that starts from nothing; whatever is left out is the target's."""

    draft_vocab_size: int = Field(
        ge=1, le=10_000_000, description="Token ids that the drafter can say: the most frequent ones."
    )
    intermediate_size: int | None = Field(
        default=None, ge=1, le=1_000_000, description="Width of the feed-forward part."
    )
    heads: int | None = Field(default=None, ge=1, le=1024, description="Attention heads.")
    kv_heads: int | None = Field(default=None, ge=1, le=1024, description="Heads of keys and values.")


class Training(ApiModel):
    """How to train. Steps, and tokens of a batch, are those of the optimiser over all ranks together."""

    RULES = (
        Rule(
            "!has(self.pod) || !has(self.pod.env) || "
            "self.pod.env.all(variable, !variable.name.startsWith('PET_'))",
            "variables that begin with PET_ tell the trainers of each other and are set by the operator; "
            "choose another name",
        ),
    )

    epochs: int = Field(default=5, ge=1, le=1000, description="Passes over the rows.")
    learning_rate: PositiveNumber | None = Field(
        default=None, description="Highest learning rate." + _depends("learning_rate")
    )
    schedule: LearningRateSchedule = Field(
        default=LearningRateSchedule.COSINE, description="How the rate goes after the warm-up."
    )
    warmup_steps: int = Field(default=50, ge=0, le=1_000_000, description="Steps in which the rate rises.")
    ttt_length: int | None = Field(
        default=None, ge=1, le=16, description="Steps of training-time test." + _depends("ttt_length")
    )
    ttt_decay: Fraction | None = Field(
        default=None,
        description="Weight of a step of training-time test, by that of the one before."
        + _depends("ttt_decay"),
    )
    tokens_per_batch: int = Field(
        default=16384, ge=1, le=100_000_000, description="Most tokens of one optimiser step."
    )
    max_row_tokens: int | None = Field(
        default=None,
        ge=4,
        le=16_777_216,
        description="Longer rows are cut from the right; no limit when left out.",
    )
    gradient_clip: PositiveNumber = Field(default="0.5", description="Largest norm of the gradient.")
    precision: Precision = Field(
        default=Precision.BFLOAT16, description="In what the large products are computed."
    )
    seed: int = Field(
        default=0, ge=0, le=2**53, description="Of fresh weights, the order of rows and the noise."
    )
    l2_to_init: NonNegativeNumber = Field(
        default="0", description="Pull of the weights to where they started."
    )
    noise_std: NonNegativeNumber = Field(
        default="0",
        description="Standard deviation of the uniform noise on the states that enter the drafter.",
    )
    pod: PodOverrides | None = Field(
        default=None,
        description="Overrides of the job pods: plan, trainer and finish. What places a pod or gives it "
        "resources concerns the trainer alone.",
    )


class Checkpoint(ApiModel):
    """When the training is saved, so that it can go on from there."""

    every_steps: int = Field(
        default=500, ge=1, le=1_000_000, description="Optimiser steps between two checkpoints."
    )
    keep: int = Field(default=2, ge=1, le=1000, description="How many of the newest stay, besides the best.")


_WrittenIds = Annotated[list[Annotated[int, Field(ge=0, le=1024)]], Field(min_length=1, max_length=16)]


class ExportLayerIds(ApiModel):
    """Layer ids as an engine's config has them; those that follow from the target when left out."""

    vllm: _WrittenIds | None = Field(default=None, description="Written for vLLM.")
    sglang: _WrittenIds | None = Field(default=None, description="Written for SGLang.")


class Export(ApiModel):
    """How the drafter is written."""

    layer_ids: ExportLayerIds = Field(
        default_factory=ExportLayerIds,
        description="Ids to write into the drafter's config for an engine that counts the target's layers in "
        "another way than is known of it.",
    )


class DrafterOutput(ApiModel):
    """Where checkpoints and drafter go."""

    path: RelativePath = Field(
        description="Folder below storage.data; the drafter is in its folder drafter, the checkpoints in "
        "checkpoints."
    )


class DrafterTrainSpec(RunSpec):
    """Which states a drafter is trained on, what it starts from, and how it is trained."""

    EXACTLY_ONE_OF = ("init", "scratch")
    RULES = (
        Rule(
            "has(self.from.extractRun) || (has(self.target) && has(self.storage))",
            "target and storage are inherited from from.extractRun; with from.path they have to be given",
        ),
        Rule(
            "self.gpusPerNode > 0 || !has(self.gpuProducts)",
            "gpuProducts chooses among GPUs, and gpusPerNode 0 trains on CPU; remove it or ask for GPUs",
        ),
        Rule(
            "self.heldOutPercent > 0 || !has(self.evaluation)",
            "an evaluation asks prompts that were held out, and heldOutPercent 0 holds none out",
        ),
    )

    from_: FromExtractRun = Field(alias="from", description="The hidden states.")
    target: Model | None = Field(
        default=None,
        description="The target model, of which config, embeddings, final norm and lm_head are read; that of "
        "from.extractRun when left out.",
    )
    storage: Storage | None = Field(
        default=None, description="Volumes of the run; those of from.extractRun when left out."
    )
    init: Init | None = Field(default=None, description="A drafter to start from; or use scratch.")
    scratch: Scratch | None = Field(default=None, description="Start from nothing; or use init.")
    training: Training = Field(default_factory=Training, description="How to train.")
    nodes: int = Field(default=1, ge=1, le=64, description="Trainer pods. All of them run, or none does.")
    gpus_per_node: int = Field(
        default=8,
        ge=0,
        le=16,
        description="GPUs of each trainer pod (nvidia.com/gpu), a process for each; 0 trains on CPU.",
    )
    gpu_products: list[Annotated[str, Field(min_length=1, max_length=63)]] | None = Field(
        default=None,
        max_length=16,
        description="Accepted values of the node label nvidia.com/gpu.product; any when left out.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    shared_memory: Quantity = Field(
        default="16Gi",
        description="Size of /dev/shm of a trainer pod; it counts against the pod's memory.",
    )
    extra_resources: dict[str, Quantity] | None = Field(
        default=None,
        max_length=16,
        description="Further extended resources of a trainer pod, for example rdma/ib.",
    )
    resource_claims: list[ResourceClaim] | None = Field(
        default=None,
        max_length=8,
        description="Dynamic resource allocation claims of a trainer pod, passed through.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    checkpoint: Checkpoint = Field(default_factory=Checkpoint, description="When the training is saved.")
    held_out_percent: int = Field(
        default=5,
        ge=0,
        le=99,
        description="Per cent of the prompts whose rows are not trained on, but evaluated on after each "
        "epoch, all turns of a conversation together; the best checkpoint is chosen by them, the last one "
        "with 0.",
    )
    export: Export = Field(default_factory=Export, description="How the drafter is written.")
    evaluation: Evaluation | None = Field(
        default=None,
        description="How the drafter is measured at work when it is trained; it is not when left out.",
    )
    output: DrafterOutput = Field(description="Where checkpoints and drafter go.")


class DrafterTrain(ApiModel):
    """The target's hidden states -> a drafter that vLLM and SGLang load, with its acceptance length."""

    api_version: Literal["draftmill.dev/v1alpha1"] = "draftmill.dev/v1alpha1"
    kind: Literal["DrafterTrain"] = "DrafterTrain"
    metadata: dict[str, Any] = Field(default_factory=dict)
    spec: DrafterTrainSpec
    status: DrafterTrainStatus | None = None


__all__ = [
    "FROM_SCRATCH",
    "WARM_START",
    "Checkpoint",
    "DrafterOutput",
    "DrafterTrain",
    "DrafterTrainSpec",
    "DrafterTrainStatus",
    "Evaluation",
    "Export",
    "ExportLayerIds",
    "Init",
    "LearningRateSchedule",
    "Precision",
    "Scratch",
    "StartDefaults",
    "TrainEvaluation",
    "TrainOutput",
    "TrainPlan",
    "TrainProgress",
    "Training",
    "WrittenLayerIds",
    "Yardstick",
]
