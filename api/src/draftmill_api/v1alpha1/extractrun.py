"""ExtractRun: runs a SynthRun's records through the target and stores its hidden states."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final, Literal

from pydantic import Field

from draftmill_api.base import ApiModel, Duration, Quantity, Rule, says
from draftmill_api.record import RecordStatus
from draftmill_api.v1alpha1.extractstatus import (
    ExtractOutput,
    ExtractPlan,
    ExtractProgress,
    ExtractRunStatus,
    LayerId,
    SkippedRows,
    StateDtype,
)
from draftmill_api.v1alpha1.lifecycle import RunSpec
from draftmill_api.v1alpha1.pod import PodOverrides
from draftmill_api.v1alpha1.shared import Endpoint, Model, RelativePath, Server, Storage
from draftmill_api.v1alpha1.upstream import FromSynthRun

ONLY_VLLM: Final = "no other engine writes hidden states"
DEFAULT_IS_TRUE: Final = "layers.default is true or left out: give other layers as ids, or by fromDrafter"


class Backend(StrEnum):
    """What computes the hidden states."""

    VLLM = "VLLM"
    """A vLLM server with its hidden-state connector, in the worker's pod."""
    TRANSFORMERS = "Transformers"
    """The transformers library in the worker itself: small models, on CPU or one GPU."""


class OnLongRow(StrEnum):
    """What becomes of a row that is longer than maxRowTokens."""

    CUT = "Cut"
    """Its tokens beyond the limit are left out, from the right."""
    SKIP = "Skip"


class DrafterFolder(ApiModel):
    """An EAGLE-3 drafter."""

    path: RelativePath = Field(description="Folder of the drafter below storage.models.")


class Layers(ApiModel):
    """Which layers' states are stored: exactly one of ids, default and fromDrafter.

    Ids are of the "entering layer" convention: id i is the residual stream before layer i; id L, the number
    of layers, is the one after the last layer, before the final norm, and is always added.
    """

    CALLED = "choice of layers"
    EXACTLY_ONE_OF = ("ids", "default", "from_drafter")
    RULES = (Rule("!has(self.default) || self.default", DEFAULT_IS_TRUE),)

    ids: list[LayerId] | None = Field(
        default=None,
        min_length=1,
        max_length=16,
        description="Layer ids in increasing order, below the number of layers.",
    )
    default: bool | None = Field(
        default=None,
        description="true: [2, L//2, L-3] for a model of L layers, what drafters use unless told otherwise.",
    )
    from_drafter: DrafterFolder | None = Field(
        default=None,
        description="The ids that this drafter's config names, to finetune it. Of the other convention in "
        "use, which counts the outputs of layers, only the default ids are told from these.",
    )


class Verify(ApiModel):
    """Checks of the server before the mass of rows."""

    teacher_argmax_sample: int = Field(
        default=8,
        ge=1,
        le=1000,
        description="Rows whose last state, through final norm and lm_head, must give the server's own "
        "likeliest next token.",
    )


class Extraction(ApiModel):
    """The extractor's pods."""

    gpus: int = Field(
        default=0,
        ge=0,
        le=1,
        description="GPUs of the extractor itself with backend Transformers; 0 computes on CPU, in float32.",
    )
    pod: PodOverrides | None = Field(
        default=None,
        description="Overrides of the job pods: plan, extractor and finish. Where a server stands in the "
        "extractor's pod, that is placed by server.pod: of these it takes labels, annotations, volumes and "
        "imagePullSecrets, and what concerns the extractor's container.",
    )


class StoreOutput(ApiModel):
    """Where the states go."""

    path: RelativePath = Field(description="Folder of the store below storage.data, for example states/k25.")


class ExtractRunSpec(RunSpec):
    """Which records' hidden states shall be stored, and how they are computed."""

    RULES = (
        Rule(
            "self.backend == 'Transformers' || has(self.server) != has(self.endpoints)",
            "backend VLLM needs exactly one of server and endpoints",
        ),
        Rule(
            "self.backend == 'VLLM' || (!has(self.server) && !has(self.endpoints))",
            "backend Transformers computes in the worker itself: remove server and endpoints",
        ),
        Rule(
            "!has(self.server) || self.server.engine == 'VLLM'",
            f"backend VLLM needs a server with engine VLLM: {ONLY_VLLM}",
        ),
        Rule(
            "!has(self.endpoints) || self.endpoints.all(each, each.engine == 'VLLM')",
            f"backend VLLM needs endpoints with engine VLLM: {ONLY_VLLM}",
        ),
        Rule(
            "has(self.endpoints) == has(self.staging)",
            "endpoints and staging belong together: the folder below storage.data that those servers write "
            "states to",
        ),
        Rule(
            "!has(self.server) || self.server.replicas == 1 || self.server.replicas == self.workers",
            "each worker has a server of its own: leave server.replicas out and set workers",
        ),
        Rule(
            "!has(self.server) || !has(self.server.contextLength)",
            "server.contextLength follows from the longest row; remove it and use maxRowTokens",
        ),
        Rule(
            "!has(self.server) || (!has(self.server.keepAfterSuccess) && !has(self.server.keepAfterFailure))",
            "the servers of an ExtractRun are part of its workers' pods and cannot outlive them; remove "
            "keepAfterSuccess and keepAfterFailure",
        ),
        Rule(
            "has(self.from.synthRun) || (has(self.model) && has(self.storage))",
            "model and storage are inherited from from.synthRun; with from.path they have to be given",
        ),
        Rule(
            "self.extraction.gpus == 0 || self.backend == 'Transformers'",
            "extraction.gpus is for backend Transformers; with VLLM the server has the GPUs",
        ),
    )

    from_: FromSynthRun = Field(alias="from", description="The records.")
    model: Model | None = Field(
        default=None, description="The target model; that of from.synthRun when left out."
    )
    storage: Storage | None = Field(
        default=None, description="Volumes of the run; those of from.synthRun when left out."
    )
    backend: Backend = Field(default=Backend.VLLM, description="What computes the states.")
    server: Server | None = Field(
        default=None,
        description="The vLLM server of each worker, which the operator starts; or use endpoints.",
    )
    endpoints: list[Endpoint] | None = Field(
        default=None,
        min_length=1,
        max_length=64,
        description="vLLM servers that exist already, started for hidden states; or use server. How many "
        "states they write, and the last of them, is checked; whether the others are of the planned layers "
        "cannot be.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    staging: RelativePath | None = Field(
        default=None,
        description="With endpoints: folder below storage.data that those servers write states to, mounted "
        "there under the same path as in the extractor (/data).",
    )
    layers: Layers = Field(
        default_factory=lambda: Layers(default=True),
        description="Which layers; the default ones when left out.",
    )
    dtype: StateDtype = Field(default=StateDtype.BFLOAT16, description="How states are stored.")
    max_row_tokens: int | None = Field(
        default=None, ge=2, le=16_777_216, description="Longest row in tokens; no limit when left out."
    )
    on_long_row: OnLongRow = Field(
        default=OnLongRow.CUT, description="What becomes of a row longer than maxRowTokens."
    )
    row_filter: list[RecordStatus] = Field(
        default_factory=lambda: [
            RecordStatus.OK,
            RecordStatus.TRUNCATED,
            RecordStatus.TRUNCATED_REASONING,
        ],
        min_length=1,
        max_length=8,
        description="Statuses of the records that are used; ok, truncated and truncated_reasoning when left "
        "out, for without the truncated ones the longest are missing.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    max_rows: int | None = Field(
        default=None, ge=1, le=1_000_000_000, description="Use the first so many rows that pass the filter."
    )
    shard_size: Quantity = Field(default="4Gi", description="Size at which a shard of the store is closed.")
    workers: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Number of extractors that share the rows, each one pod, with a server of its own.",
    )
    in_flight_tokens: int = Field(
        default=65536,
        ge=1,
        le=100_000_000,
        description="Most tokens on their way through a server and its staging folder at once; the folder's "
        "size limit follows from it when a pod starts. One row that is longer goes alone.",
        json_schema_extra=says("inFlightTokens is a number of tokens above zero"),
    )
    retries: int = Field(
        default=3, ge=0, le=100, description="Further tries of a row that failed in a way that may pass."
    )
    outage_timeout: Duration = Field(
        default="1h",
        description="An extractor of whose servers not one could be used for so long fails, and is started "
        "again, up to backoffLimit times.",
    )
    verify: Verify = Field(default_factory=Verify, description="Checks before the mass of rows.")
    extraction: Extraction = Field(default_factory=Extraction, description="The extractor's pods.")
    output: StoreOutput = Field(description="Where the states go.")


class ExtractRun(ApiModel):
    """A SynthRun's answers -> the target's hidden states, sharded and checksummed."""

    api_version: Literal["draftmill.dev/v1alpha1"] = "draftmill.dev/v1alpha1"
    kind: Literal["ExtractRun"] = "ExtractRun"
    metadata: dict[str, Any] = Field(default_factory=dict)
    spec: ExtractRunSpec
    status: ExtractRunStatus | None = None


__all__ = [
    "Backend",
    "ExtractOutput",
    "ExtractPlan",
    "ExtractProgress",
    "ExtractRun",
    "ExtractRunSpec",
    "ExtractRunStatus",
    "Extraction",
    "LayerId",
    "Layers",
    "OnLongRow",
    "SkippedRows",
    "StateDtype",
    "StoreOutput",
    "Verify",
]
