"""Status of an ExtractRun: what its plan found, how far it is, what it published."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from draftmill_api.base import ApiModel
from draftmill_api.v1alpha1.runstatus import RunStatus
from draftmill_api.v1alpha1.status import Count, ModelFacts, Output, Sha256
from draftmill_api.v1alpha1.upstream import RunInput

LayerId = Annotated[int, Field(ge=0, le=1024)]


class StateDtype(StrEnum):
    """How states are stored."""

    BFLOAT16 = "BFloat16"
    FLOAT32 = "Float32"
    FLOAT8 = "Float8"
    """e4m3, with a float32 scale for each (token, layer)."""


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


class ExtractOutput(Output):
    """What a finished ExtractRun publishes."""

    rows: Count = Field(description="Rows in the store.")
    tokens: Count = Field(description="Tokens in the store.")
    bytes: Count = Field(description="Bytes of the store.")
    layer_ids: list[LayerId] = Field(max_length=17, description="Stored layers, as in the plan.")
    dtype: StateDtype = Field(description="How the states are stored.")


class ExtractRunStatus(RunStatus[ExtractPlan, ExtractProgress, ExtractOutput]):
    """What the operator observed; written by it alone."""

    input: RunInput | None = Field(
        default=None, description="The earlier run that this one is bound to, since it was Complete."
    )
