"""The config file of an ExtractRun's jobs, and what they answer."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, field_validator

from draftmill_api.base import ApiModel, Duration, Quantity
from draftmill_api.jobconfig import (
    AbsolutePath,
    JobModel,
    JobOutput,
    JobRun,
    newer_field,
    refuse_same_name,
)
from draftmill_api.record import RecordStatus
from draftmill_api.v1alpha1.extractrun import (
    DEFAULT_IS_TRUE,
    ONLY_VLLM,
    Backend,
    ExtractPlan,
    LayerId,
    OnLongRow,
    StateDtype,
    Verify,
)
from draftmill_api.v1alpha1.extractstatus import SkippedRows
from draftmill_api.v1alpha1.shared import Endpoint, Engine
from draftmill_api.v1alpha1.status import MOST_FAILURES, Failure, Sha256, VolumePath


class JobRecords(ApiModel):
    """The records: a folder with one folder of raw_responses*.jsonl for each dataset."""

    path: AbsolutePath
    manifest: AbsolutePath | None = Field(
        default=None, description="The manifest that lists the files; every file there is, without one."
    )
    manifest_sha256: Sha256 | None = Field(
        default=None, alias="manifestSHA256", description="What the manifest has to be."
    )
    model_fingerprint: Sha256 | None = Field(
        default=None, description="Model that the records have to be of; the plan's own model without it."
    )


class JobLayers(ApiModel):
    """Which layers: exactly one of ids, default and fromDrafter; L is always added."""

    CALLED = "choice of layers"
    EXACTLY_ONE_OF = ("ids", "default", "from_drafter")

    ids: list[LayerId] | None = None
    default: bool | None = None
    from_drafter: AbsolutePath | None = Field(default=None, description="Folder of a drafter.")

    @field_validator("default")
    @classmethod
    def _default_is_true(cls, default: bool | None) -> bool | None:
        if default is False:
            raise ValueError(DEFAULT_IS_TRUE)
        return default


class ExtractJobConfig(ApiModel):
    """Config of `draftmill plan`, `extract` and `finish` for an ExtractRun."""

    run: JobRun
    model: JobModel
    records: JobRecords
    output: JobOutput
    backend: Backend = Backend.VLLM
    layers: JobLayers = Field(default_factory=lambda: JobLayers(default=True))
    dtype: StateDtype = StateDtype.BFLOAT16
    max_row_tokens: int | None = Field(default=None, ge=2)
    on_long_row: OnLongRow = OnLongRow.CUT
    row_filter: list[RecordStatus] = Field(
        default_factory=lambda: [
            RecordStatus.OK,
            RecordStatus.TRUNCATED,
            RecordStatus.TRUNCATED_REASONING,
        ],
        min_length=1,
    )
    max_rows: int | None = Field(default=None, ge=1)
    shard_size: Quantity = "4Gi"
    in_flight_tokens: int = Field(default=65536, ge=1)
    retries: int = Field(default=3, ge=0)
    outage_timeout: Duration = newer_field("1h")
    verify: Verify = Field(default_factory=Verify)
    gpus: int = Field(default=0, ge=0, le=1, description="Backend Transformers: 0 is CPU, 1 is CUDA.")
    endpoints: list[Endpoint] = Field(
        default_factory=list, max_length=64, description="Backend VLLM: this worker's servers."
    )
    staging: AbsolutePath | None = Field(
        default=None, description="Backend VLLM: folder that the servers write states to."
    )
    plan: ExtractPlan | None = Field(
        default=None, description="What the plan found, for the steps after it; they make their own without."
    )

    @field_validator("endpoints")
    @classmethod
    def _endpoints_are_told_apart_and_write_states(cls, endpoints: list[Endpoint]) -> list[Endpoint]:
        names = [endpoint.name for endpoint in endpoints]
        refuse_same_name(names, "endpoints", "by which they are told apart")
        if others := [endpoint.name for endpoint in endpoints if endpoint.engine is not Engine.VLLM]:
            raise ValueError(f"endpoint {others[0]!r} is not of engine VLLM: {ONLY_VLLM}")
        return endpoints


class ExtractFinishResult(ApiModel):
    """What the finish counted in the store."""

    rows: int
    tokens: int
    bytes: int
    quarantined: int
    manifest: VolumePath = Field(description="Path of the manifest, below the data volume in a pod.")
    manifest_sha256: Sha256 = Field(alias="manifestSHA256")
    failures: list[Failure] = Field(
        default_factory=list,
        max_length=MOST_FAILURES,
        description="Why rows were quarantined, most frequent first.",
    )


class QuarantinedRow(BaseModel):
    """One line of `quarantine.jsonl`: a row whose states were refused for good, or never came."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: str
    id: str
    reason: str = Field(description="Kind of fault, snake_case: not_a_number, all_zero, other_tokens, ...")
    message: str
    tries: int
    created: str = Field(description="RFC 3339, UTC.")
    run: str = Field(description="Uid of the run; another run asks for the row again.")
    restart: str = Field(description="The run's restart word; with another one the row is asked for again.")


class ExtractSummary(ApiModel):
    """`summary.json` of a store: the accounting, for people and programs."""

    run: JobRun
    rows: int = Field(description="In the store.")
    tokens: int
    bytes: int
    skipped: SkippedRows
    cut_rows: int
    cut_tokens: int
    quarantined: dict[str, int] = Field(description="By reason.")
    accounted: bool = Field(description="Rows of the store and of the quarantine are those of the records.")
