"""Status of the runs: what people, Argo CD and downstream runs read."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field
from pydantic.config import JsonDict

from draftmill_api.base import ApiModel
from draftmill_api.v1alpha1.shared import Volume

NAME_MAP: JsonDict = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
TYPE_MAP: JsonDict = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
Time = Annotated[str, Field(max_length=32, json_schema_extra={"format": "date-time"})]
Count = Annotated[int, Field(ge=0)]
VolumePath = Annotated[str, Field(max_length=576)]
"""A path on a volume: one that a spec names, and what a run adds to it."""
Sha256 = Annotated[str, Field(max_length=64)]


class Phase(StrEnum):
    """Where a run is, for people; derived in every pass, never read by logic."""

    PENDING = "Pending"
    WAITING_FOR_INPUT = "WaitingForInput"
    PLANNING = "Planning"
    STARTING = "Starting"
    RUNNING = "Running"
    PAUSED = "Paused"
    SUSPENDING = "Suspending"
    SUSPENDED = "Suspended"
    FINISHING = "Finishing"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class ConditionType(StrEnum):
    """Condition types; exactly one of COMPLETE and FAILED is ever set, once."""

    INPUT_READY = "InputReady"
    PLANNED = "Planned"
    SERVERS_READY = "ServersReady"
    EVALUATED = "Evaluated"
    PROGRESSING = "Progressing"
    PAUSED = "Paused"
    COMPLETE = "Complete"
    FAILED = "Failed"


class ConditionStatus(StrEnum):
    """Whether a condition holds; the operator says nothing of what it does not know."""

    TRUE = "True"
    FALSE = "False"


class Condition(ApiModel):
    """One observation about the run, in Kubernetes' usual form."""

    type: str = Field(max_length=64, description="Kind of the condition.")
    status: ConditionStatus = Field(description="True or False.")
    reason: str = Field(max_length=128, description="Reason as one CamelCase word.")
    message: str = Field(default="", max_length=4096, description="The reason in a sentence.")
    last_transition_time: Time = Field(description="When status last changed.")
    observed_generation: Count = Field(description="Generation of the spec that this was observed for.")


class ModelFacts(ApiModel):
    """What the plan read in the model's folder."""

    fingerprint: Sha256 = Field(description="Identity of the model: config, tokenizer and weight headers.")
    architecture: str = Field(max_length=128, description="First architecture named by config.json.")
    layers: Count = Field(description="Number of hidden layers.")
    hidden_size: Count = Field(description="Width of the hidden states.")
    vocabulary_size: Count = Field(description="Number of token ids.")
    context_length: Count | None = Field(
        default=None, description="Longest sequence the model states, in tokens."
    )
    think_family: str = Field(max_length=32, description="Family of think tokens the answers are read with.")


class DatasetPlan(ApiModel):
    """Size of one dataset."""

    name: str = Field(max_length=40, description="Name of the dataset.")
    total: Count = Field(description="Rows to account for: source rows x samples.")
    duplicates: Count = Field(default=0, description="Rows whose prompt stands earlier in the dataset.")
    unusable: Count = Field(default=0, description="Rows that cannot be asked; they go to the dead letter.")
    filtered: Count = Field(
        default=0, description="Rows of the source beside these, which the dataset's filters leave out."
    )


class Plan(ApiModel):
    """What the plan found before any server was started."""

    model: ModelFacts = Field(description="Facts of the model.")
    datasets: list[DatasetPlan] = Field(
        default_factory=list, max_length=64, description="Sizes of the datasets.", json_schema_extra=NAME_MAP
    )
    output_path: VolumePath = Field(
        default="",
        description="Folder below storage.data that the answers go to: output.path, or with output.onChange "
        "NewFolder one beside it. Empty, of plans made before there was a choice: output.path.",
    )
    rows: Count = Field(description="Rows to account for, in all datasets.")
    prompt_tokens: Count = Field(
        description="Tokens of all distinct prompts, estimated from a sample where large."
    )
    longest_prompt_tokens: Count = Field(description="Tokens of the longest prompt that was tokenised.")
    bytes_needed: Count = Field(description="Estimated size of the output in bytes.")
    bytes_free: Count = Field(description="Free bytes of the data volume.")


class Counts(ApiModel):
    """Rows by what became of them."""

    done: Count = Field(default=0, description="Rows with a record.")
    total: Count = Field(default=0, description="Rows to account for.")
    ok: Count = Field(default=0, description="Records with a whole answer.")
    truncated: Count = Field(default=0, description="Records cut off by a limit or by repetition.")
    malformed: Count = Field(default=0, description="Records whose think tokens do not add up.")
    errors: Count = Field(default=0, description="Rows in the dead letter.")
    skipped: Count = Field(default=0, description="Rows whose prompt was asked already in the same dataset.")
    not_admitted: Count = Field(default=0, description="Rows left out because maxTokens was reached.")
    completion_tokens: Count = Field(default=0, description="Tokens of all answers.")


class DatasetProgress(Counts):
    """Progress of one dataset."""

    name: str = Field(max_length=40, description="Name of the dataset.")


class ChosenConcurrency(ApiModel):
    """What generation.concurrency Auto has found."""

    in_force: Count = Field(description="Most requests in flight at once, now.")
    settled: bool = Field(description="Whether it is found; else more is still tried.")
    reason: str = Field(max_length=256, description="Why, with the figures that were measured.")


class RunProgress(Counts):
    """Progress of the run."""

    retried: Count = Field(default=0, description="Requests that were sent again.")
    in_flight: Count = Field(default=0, description="Requests in flight.")
    concurrency: ChosenConcurrency | None = Field(
        default=None, description="With generation.concurrency Auto, what it has found."
    )
    requests_per_second: str = Field(
        default="", max_length=16, description="Finished rows per second, two digits."
    )
    tokens_per_second: Count | None = Field(default=None, description="Completion tokens per second.")
    average_completion_tokens: Count | None = Field(
        default=None, description="Mean length of the answers in tokens."
    )
    eta: str = Field(
        default="", max_length=16, description="Time to the end, two digits; empty when unknown."
    )
    eta_low: str = Field(
        default="",
        max_length=16,
        description="With eta: the end comes later than this with 90 % probability, so that it lies between "
        "etaLow and etaHigh with 80 %.",
    )
    eta_high: str = Field(
        default="", max_length=16, description="With eta: the end comes before this with 90 % probability."
    )


class Servers(ApiModel):
    """Server pods of the run."""

    ready: Count = Field(default=0, description="Ready pods of the current template.")
    wanted: Count = Field(default=0, description="Pods asked for.")
    summary: str = Field(default="", max_length=16, description="ready/wanted.")


class OutputModel(ApiModel):
    """The model that an output was made with."""

    name: str = Field(max_length=128, description="Name of the model.")
    fingerprint: Sha256 = Field(description="Fingerprint of the model.")


class Output(ApiModel):
    """What a finished run publishes, whatever its kind."""

    volume: Volume = Field(description="Volume of the output.")
    path: VolumePath = Field(description="Folder on the volume.")
    manifest: VolumePath = Field(description="Path of the manifest on the volume.")
    manifest_sha256: Sha256 = Field(alias="manifestSHA256", description="Hash of the manifest.")
    model: OutputModel = Field(description="The target model.")


class RunOutput(Output):
    """What a finished SynthRun publishes."""

    records: Count = Field(description="Records written.")
    tokens: Count = Field(description="Completion tokens in them.")


MOST_FAILURES: Final = 10
"""Reasons in a status or a termination message: the most frequent ones."""


class Failure(ApiModel):
    """A reason for which rows failed."""

    reason: str = Field(max_length=64, description="Kind of failure.")
    count: Count = Field(description="Rows that failed so.")
    id: str = Field(default="", max_length=96, description="A row that failed so.")
    message: str = Field(default="", max_length=1024, description="What was said about that row.")
    remedy: str = Field(default="", max_length=512, description="What to do about it.")
