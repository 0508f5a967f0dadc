"""The config file of an ExtractRun's jobs, and what they answer."""

from __future__ import annotations

from pydantic import Field

from draftmill_api.base import ApiModel, Quantity
from draftmill_api.jobconfig import AbsolutePath, JobModel, JobOutput, JobRun
from draftmill_api.record import RecordStatus
from draftmill_api.v1alpha1.extractrun import (
    Backend,
    ExtractPlan,
    LayerId,
    OnLongRow,
    StateDtype,
    Verify,
)
from draftmill_api.v1alpha1.shared import Endpoint
from draftmill_api.v1alpha1.status import Failure, Sha256


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

    EXACTLY_ONE_OF = ("ids", "default", "from_drafter")

    ids: list[LayerId] | None = None
    default: bool | None = None
    from_drafter: AbsolutePath | None = Field(default=None, description="Folder of a drafter.")


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


class ExtractFinishResult(ApiModel):
    """What the finish counted in the store."""

    rows: int
    tokens: int
    bytes: int
    quarantined: int
    manifest: str = Field(max_length=512, description="Path of the manifest, below the data volume in a pod.")
    manifest_sha256: Sha256 = Field(alias="manifestSHA256")
    failures: list[Failure] = Field(
        default_factory=list, max_length=5, description="Why rows were quarantined, most frequent first."
    )
