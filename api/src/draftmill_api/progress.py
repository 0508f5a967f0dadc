"""What a worker serves at `/progress`, and what a job leaves as its termination message."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from pydantic import Field

from draftmill_api.base import ApiModel
from draftmill_api.extractjob import ExtractFinishResult
from draftmill_api.trainjob import TrainFinishResult
from draftmill_api.v1alpha1.extractstatus import ExtractPlan, ExtractProgress
from draftmill_api.v1alpha1.status import (
    MOST_FAILURES,
    Count,
    Counts,
    DatasetProgress,
    Failure,
    ModelFacts,
    RunProgress,
    VolumePath,
)
from draftmill_api.v1alpha1.trainstatus import TrainPlan, TrainProgress


class WorkerState(StrEnum):
    """Where a worker is."""

    WAITING = "Waiting"
    """No endpoint answers yet."""
    PREFLIGHT = "Preflight"
    RUNNING = "Running"
    PAUSED = "Paused"
    """The error policy has tripped: nothing is admitted until it is raised or told to go on."""
    STORAGE_FULL = "StorageFull"
    """Answers wait for room on the data volume: nothing is admitted until there is some."""
    DRAINING = "Draining"
    """SIGTERM came: nothing is admitted, in-flight answers are awaited."""
    DONE = "Done"


class Concern(StrEnum):
    """What deserves a look though work goes on; the first is the gravest."""

    LENGTH_BIAS = "LengthBias"
    """Rows that fail are longer than the others: what is left leans to short answers."""
    ERRORS_FREQUENT = "ErrorsFrequent"
    """More than errorPolicy.warnPercent of the last rows failed."""
    SERVER_OUT = "ServerOut"
    """A server cannot be used, or its requests fail, while others have rows."""
    LENGTHS_FELL = "LengthsFell"
    """The median length of the answers fell by half."""


class ServerProgress(ApiModel):
    """What a worker knows of one server."""

    name: str = Field(description="Name of the endpoint.")
    state: str = Field(description="starting, proving, up, or tripped: taken out after failures.")
    in_flight: Count = Field(description="Requests of this worker that it has, or is about to have.")
    limit: Count | None = Field(
        default=None, description="Most of them at once: its cap, or less after refusals."
    )
    refused: Count = Field(default=0, description="Requests that it refused for lack of room.")
    cuts: Count = Field(default=0, description="How often its limit was cut for that.")
    problem: str = Field(default="", description="Why it is not up, in a sentence.")


class Progress(ApiModel):
    """The state of one worker, as JSON at `/progress`."""

    run_uid: str = ""
    worker: str = Field(
        default="0/1", description="Index and number of the workers; all ranks of a trainer are one."
    )
    attempt: int = 1
    state: WorkerState
    config_hash: str = Field(description="Hash of the config file in force.")
    progress: RunProgress = Field(default_factory=RunProgress, description="Of a generator.")
    extraction: ExtractProgress | None = Field(default=None, description="Of an extractor.")
    training: TrainProgress | None = Field(default=None, description="Of a trainer's first rank.")
    datasets: list[DatasetProgress] = Field(default_factory=list)
    servers: list[ServerProgress] = Field(default_factory=list, description="Of a generator.")
    waiting: Count = Field(default=0, description="Rows of a generator that wait for a place at a server.")
    failures: list[Failure] = Field(default_factory=list, description="Every reason, most frequent first.")
    request_failures: dict[str, Count] = Field(
        default_factory=dict,
        description="Requests that brought no answer, by reason; most of their rows were asked again.",
    )
    message: str = Field(default="", description="What it waits for, or why it has paused, in a sentence.")
    recent_errors: Count = Field(default=0, description="Failed rows among the last errorPolicy.window.")
    warning: str = Field(
        default="",
        max_length=1024,
        description="What deserves a look though work goes on, in a sentence.",
    )
    concern: Concern = Field(default=Concern.ERRORS_FREQUENT, description="What the warning is about.")


class Refusal(ApiModel):
    """Why a job ended with `ExitCode.CONFIGURATION`, or failed."""

    reason: str = Field(
        max_length=64, description="One CamelCase word: ModelNotFound, StorageNotWritable, ..."
    )
    message: str = Field(max_length=1024, description="What is wrong, with what, and the remedy.")


class PlanResult(ApiModel):
    """What a plan found. Lists are in the spec's order of datasets, without names, to stay small."""

    model: ModelFacts
    output: VolumePath = Field(
        default="",
        description="Folder of the answers where it is not output.path, below the data volume in a pod.",
    )
    dataset_totals: list[int] = Field(max_length=64)
    dataset_duplicates: list[int] = Field(max_length=64)
    dataset_unusable: list[int] = Field(max_length=64)
    dataset_filtered: list[int] = Field(max_length=64)
    prompt_tokens: int
    longest_prompt_tokens: int
    bytes_needed: int
    bytes_free: int


COUNT_FIELDS: Final = (
    "done",
    "total",
    "ok",
    "truncated",
    "malformed",
    "errors",
    "skipped",
    "not_admitted",
    "completion_tokens",
)
"""Order of the numbers in `FinishResult.dataset_counts`, which has no room for their names."""


def packed(counts: Counts) -> list[int]:
    """Counts as bare numbers."""
    return [getattr(counts, field) for field in COUNT_FIELDS]


def unpacked(name: str, numbers: list[int]) -> DatasetProgress:
    """A dataset's counts from bare numbers.

    Raises:
        ValueError: there are not as many numbers as fields.
    """
    return DatasetProgress(name=name, **dict(zip(COUNT_FIELDS, numbers, strict=True)))


class FinishResult(ApiModel):
    """What the finish step counted on disk."""

    progress: RunProgress
    dataset_counts: list[list[Count]] = Field(
        default_factory=list,
        max_length=64,
        description="Of each dataset, in the spec's order, the numbers named by COUNT_FIELDS; "
        "empty when they do not fit into a termination message.",
    )
    cap_reached: bool = Field(default=False, description="A maxTokens left rows out.")
    manifest: VolumePath = Field(description="Path of the manifest, below the data volume in a pod.")
    manifest_sha256: str = Field(alias="manifestSHA256", max_length=64)
    failures: list[Failure] = Field(default_factory=list, max_length=MOST_FAILURES)


class WorkerResult(ApiModel):
    """What a worker had done when it ended."""

    progress: RunProgress = Field(default_factory=RunProgress, description="Of a generator.")
    extraction: ExtractProgress | None = Field(default=None, description="Of an extractor.")
    training: TrainProgress | None = Field(default=None, description="Of a trainer's first rank.")


class TerminationMessage(ApiModel):
    """The last words of a job's container: one of results, or a refusal. At most 4,000 bytes of JSON."""

    refusal: Refusal | None = None
    plan: PlanResult | None = None
    worker: WorkerResult | None = None
    finish: FinishResult | None = None
    extract_plan: ExtractPlan | None = None
    extract_finish: ExtractFinishResult | None = None
    train_plan: TrainPlan | None = None
    train_finish: TrainFinishResult | None = None
