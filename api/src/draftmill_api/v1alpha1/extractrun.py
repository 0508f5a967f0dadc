"""ExtractRun: runs a SynthRun's records through the target and stores its hidden states."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from draftmill_api.base import ApiModel, Quantity, Rule, says
from draftmill_api.record import RecordStatus
from draftmill_api.v1alpha1.lifecycle import RunSpec
from draftmill_api.v1alpha1.pod import PodOverrides
from draftmill_api.v1alpha1.shared import Endpoint, Model, RelativePath, Server, Storage
from draftmill_api.v1alpha1.status import Count, ModelFacts, Sha256
from draftmill_api.v1alpha1.upstream import FromSynthRun


class Backend(StrEnum):
    """What computes the hidden states."""

    VLLM = "VLLM"
    """A vLLM server with its hidden-state connector, in the worker's pod."""
    TRANSFORMERS = "Transformers"
    """The transformers library in the worker itself: small models, on CPU or one GPU."""


class StateDtype(StrEnum):
    """How states are stored."""

    BFLOAT16 = "BFloat16"
    FLOAT32 = "Float32"
    FLOAT8 = "Float8"
    """e4m3, with a float32 scale for each (token, layer)."""


class OnLongRow(StrEnum):
    """What becomes of a row that is longer than maxRowTokens."""

    CUT = "Cut"
    """Its tokens beyond the limit are left out, from the right."""
    SKIP = "Skip"


class DrafterFolder(ApiModel):
    """An EAGLE-3 drafter."""

    path: RelativePath = Field(description="Folder of the drafter below storage.models.")


LayerId = Annotated[int, Field(ge=0, le=1024)]


class Layers(ApiModel):
    """Which layers' states are stored: exactly one of ids, default and fromDrafter.

    Ids are of the "entering layer" convention: id i is the residual stream before layer i; id L, the number
    of layers, is the one after the last layer, before the final norm, and is always added.
    """

    EXACTLY_ONE_OF = ("ids", "default", "from_drafter")

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
        default=None, description="The ids that this drafter's config names, to finetune it."
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
        default=None, description="Overrides of the job pods: plan, extractor and finish."
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
            "backend VLLM needs a server with engine VLLM: no other engine writes hidden states",
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
        description="vLLM servers that exist already, started for hidden states; or use server.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    staging: RelativePath | None = Field(
        default=None,
        description="With endpoints: folder below storage.data that those servers write states to, mounted "
        "there under the same path as in the extractor (/data).",
    )
    layers: Layers = Field(default_factory=lambda: Layers(default=True), description="Which layers.")
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
        description="Statuses of the records that are used. Leaving out the truncated ones leaves out the "
        "longest.",
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
        "size follows from it. One row that is longer goes alone.",
        json_schema_extra=says("inFlightTokens is a number of tokens above zero"),
    )
    retries: int = Field(
        default=3, ge=0, le=100, description="Further tries of a row that failed in a way that may pass."
    )
    verify: Verify = Field(default_factory=Verify, description="Checks before the mass of rows.")
    extraction: Extraction = Field(default_factory=Extraction, description="The extractor's pods.")
    output: StoreOutput = Field(description="Where the states go.")


class SkippedRows(ApiModel):
    """Rows that were left out on purpose, by why."""

    status: Count = Field(default=0, description="Their status is not in rowFilter.")
    long: Count = Field(default=0, description="Longer than maxRowTokens with onLongRow Skip.")
    no_answer: Count = Field(default=0, description="No token of the answer is left in them.")
    limit: Count = Field(default=0, description="Beyond maxRows.")

    @property
    def total(self) -> int:
        """All of them."""
        return self.status + self.long + self.no_answer + self.limit


class ExtractPlan(ApiModel):
    """What the plan found: everything the servers' flags are rendered from."""

    model: ModelFacts = Field(description="Facts of the model.")
    layer_ids: list[LayerId] = Field(
        max_length=17, description='Stored layers, ascending, "entering layer" convention; the last is L.'
    )
    rows: Count = Field(description="Rows whose states are stored.")
    tokens: Count = Field(description="Tokens of these rows, after the cut.")
    longest_row: Count = Field(description="Tokens of the longest of them, after the cut.")
    cut_rows: Count = Field(default=0, description="Rows that were cut.")
    cut_tokens: Count = Field(default=0, description="Tokens that were cut off.")
    skipped: SkippedRows = Field(
        default_factory=SkippedRows, description="Rows that are left out on purpose, by why."
    )
    state_bytes: Count = Field(description="Bytes of the states.")
    other_bytes: Count = Field(description="Bytes of scales, token ids, masks and index.")
    bytes_free: Count = Field(description="Free bytes of the data volume.")
    input_sha256: Sha256 = Field(
        alias="inputSHA256", description="Hash of the input's manifest; of the files' content without one."
    )


class ExtractProgress(ApiModel):
    """How far the extraction is."""

    rows: Count = Field(default=0, description="Rows in the store.")
    total: Count = Field(default=0, description="Rows to store.")
    tokens: Count = Field(default=0, description="Tokens in the store.")
    bytes: Count = Field(default=0, description="Bytes of the store.")
    size: str = Field(default="", max_length=16, description="The bytes for people: 828 GB.")
    quarantined: Count = Field(default=0, description="Rows whose states were refused for good.")
    retried: Count = Field(default=0, description="Rows that were asked again.")
    in_flight: Count = Field(default=0, description="Rows on their way.")
    staged_bytes: Count = Field(default=0, description="Bytes in the staging folder.")
    tokens_per_second: Count | None = Field(default=None, description="Tokens stored per second.")
    eta: str = Field(
        default="", max_length=16, description="Time to the end, two digits; empty when unknown."
    )


__all__ = [
    "Backend",
    "ExtractPlan",
    "ExtractProgress",
    "ExtractRunSpec",
    "Extraction",
    "Layers",
    "OnLongRow",
    "SkippedRows",
    "StateDtype",
    "StoreOutput",
    "Verify",
]
