"""SynthRun: asks the target model every prompt and keeps the exact token ids."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import Field

from draftmill_api.base import ApiModel, Fraction, Rule, Temperature, says
from draftmill_api.v1alpha1.generation import AUTO_ALONE, SHORT_BELOW, Generation, TemplateArguments
from draftmill_api.v1alpha1.lifecycle import RunSpec, Token
from draftmill_api.v1alpha1.runstatus import RunStatus
from draftmill_api.v1alpha1.shared import Endpoint, Model, RelativePath, Server, Storage
from draftmill_api.v1alpha1.source import Fields, Filters, Source
from draftmill_api.v1alpha1.status import NAME_MAP, DatasetProgress, Plan, RunOutput, RunProgress


class Turns(StrEnum):
    """Which turns of a conversation are rows of the run."""

    LAST_TURN = "LastTurn"
    EVERY_TURN = "EveryTurn"


class SamplingOverrides(ApiModel):
    """Sampling parameters of one dataset; what is left out comes from the run's sampling."""

    temperature: Temperature | None = Field(default=None, description="Sampling temperature; 0 is greedy.")
    top_p: Fraction | None = Field(default=None, description="Nucleus sampling: cumulative probability.")
    top_k: int | None = Field(
        default=None, ge=1, le=1_000_000, description="Sample among the k likeliest tokens only."
    )
    min_p: Fraction | None = Field(
        default=None, description="Least probability of a token relative to the likeliest one."
    )
    max_completion_tokens: int | None = Field(
        default=None, ge=1, le=16_777_216, description="Longest answer in tokens, reasoning included."
    )
    seed: int | None = Field(
        default=None, ge=0, le=2_147_483_647, description="Seed of the sampling; sample i uses seed + i."
    )
    samples_per_prompt: int | None = Field(
        default=None, ge=1, le=1024, description="Answers asked for each prompt."
    )


class Sampling(ApiModel):
    """Sampling parameters of the run."""

    temperature: Temperature = Field(default="1.0", description="Sampling temperature; 0 is greedy.")
    top_p: Fraction = Field(default="1.0", description="Nucleus sampling: cumulative probability.")
    top_k: int | None = Field(
        default=None, ge=1, le=1_000_000, description="Sample among the k likeliest tokens only."
    )
    min_p: Fraction | None = Field(
        default=None, description="Least probability of a token relative to the likeliest one."
    )
    max_completion_tokens: int = Field(
        default=8192, ge=1, le=16_777_216, description="Longest answer in tokens, reasoning included."
    )
    seed: int | None = Field(
        default=None, ge=0, le=2_147_483_647, description="Seed of the sampling; sample i uses seed + i."
    )
    samples_per_prompt: int = Field(default=1, ge=1, le=1024, description="Answers asked for each prompt.")

    def over(self, overrides: SamplingOverrides) -> Sampling:
        """These parameters with one dataset's own put over them."""
        return self.model_copy(update=overrides.model_dump(exclude_none=True))


class Dataset(ApiModel):
    """A named list of prompts; its answers go to a folder of that name."""

    name: str = Field(
        min_length=1,
        max_length=40,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$",
        description="Name of the dataset and of its output folder: letters, digits, '_', '-', '.'.",
        json_schema_extra=says(
            "a dataset's name is the name of its folder: use letters, digits, '_', '-' and '.', "
            "and begin with a letter or digit"
        ),
    )
    source: Source = Field(description="Where the prompts come from.")
    fields: Fields = Field(default_factory=Fields, description="What the source calls its columns.")
    filters: Filters = Field(default_factory=Filters, description="Which prompts are taken.")
    shuffle_seed: int | None = Field(
        default=None,
        ge=0,
        le=2_147_483_647,
        description="Read the source in an order that this number alone decides; in its own order when left "
        "out.",
    )
    turns: Turns = Field(
        default=Turns.LAST_TURN,
        description="LastTurn asks a conversation's last question, with the answers of the source before it. "
        "EveryTurn asks all its questions one after another, each with the model's own answers before it.",
    )
    max_samples: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000_000,
        description="Use the first so many rows of those that the filters leave, in shuffleSeed's order.",
    )
    max_tokens: int | None = Field(
        default=None,
        ge=1,
        description="Stop admitting rows when the answers reach so many tokens; reaching it is success.",
    )
    sampling: SamplingOverrides = Field(
        default_factory=SamplingOverrides, description="Sampling of this dataset, over the run's."
    )
    chat_template_kwargs: TemplateArguments = Field(
        default_factory=dict,
        description="Chat template arguments of this dataset, over generation.chatTemplateKwargs.",
    )


class Compression(StrEnum):
    """How the files of records are compressed."""

    NONE = "None"
    ZSTD = "Zstd"


class OnChange(StrEnum):
    """What becomes of a run whose folder holds answers that were asked in another way."""

    REFUSE = "Refuse"
    NEW_FOLDER = "NewFolder"


class Output(ApiModel):
    """Where the answers go."""

    path: RelativePath = Field(
        description="Folder below storage.data; each dataset gets a folder of its name inside.",
    )
    on_change: OnChange = Field(
        default=OnChange.REFUSE,
        description="What happens when a dataset's folder there holds answers of another model, other "
        "sampling, template arguments or turns, or to prompts whose text was changed since. Refuse: the plan "
        "fails and names the difference. NewFolder: all answers of the run go to a folder beside it, named "
        "path@fingerprint, which every later run that asks the same finds again; status.plan.outputPath has "
        "its name.",
    )
    compression: Compression = Field(
        default=Compression.NONE,
        description="Compression of the files of records: None, or Zstd, which makes a third to a fifth of "
        "them and costs some CPU time. Both are read together, whatever wrote them.",
    )

    def folder(self, plan: Plan | None) -> str:
        """Folder below storage.data that the answers go to: what the plan has chosen, once it has."""
        return (plan.output_path if plan is not None else "") or self.path


_MOST_AT_A_SERVER = says(
    "concurrency of a server is its number of requests in flight at once: from 1 to 65536"
)


class SynthServer(Server):
    """Inference servers that the operator starts for the run and removes at its end."""

    concurrency_per_replica: int | None = Field(
        default=None,
        ge=1,
        le=65536,
        description="Most requests in flight at once at each server pod, shared among the workers; "
        "generation.concurrency alone limits them when left out.",
        json_schema_extra=_MOST_AT_A_SERVER,
    )


class SynthEndpoint(Endpoint):
    """An inference server that answers requests."""

    concurrency: int | None = Field(
        default=None,
        ge=1,
        le=65536,
        description="Most requests in flight at once at this server, shared among the workers; "
        "generation.concurrency alone limits them when left out.",
        json_schema_extra=_MOST_AT_A_SERVER,
    )


class SynthRunSpec(RunSpec):
    """What a SynthRun shall produce, and with what."""

    EXACTLY_ONE_OF = ("server", "endpoints")
    RULES = (
        Rule(
            "self.datasets.all(one, self.datasets.exists_one(other, other.name == one.name))",
            "two datasets have the same name; each needs its own, which is the name of its folder",
        ),
        Rule(
            "!has(self.endpoints) || self.endpoints.all(one, "
            "self.endpoints.exists_one(other, other.name == one.name))",
            "two endpoints have the same name; each needs its own, which the records carry",
        ),
        Rule(
            "!has(self.server) || !has(self.server.contextLength) || self.datasets.all(one, "
            "one.?sampling.?maxCompletionTokens.orValue(self.sampling.maxCompletionTokens) "
            "< self.server.contextLength)",
            "maxCompletionTokens must be smaller than server.contextLength, which holds prompt and answer",
        ),
        Rule(
            "type(self.generation.concurrency) != int || "
            "self.generation.concurrency >= self.generation.workers",
            "generation.concurrency is shared among the workers: it cannot be smaller than workers",
        ),
        Rule(
            "!has(self.generation.concurrencyShort) || type(self.generation.concurrency) != int || "
            "self.generation.concurrencyShort >= self.generation.concurrency",
            SHORT_BELOW,
        ),
        Rule(
            "type(self.generation.concurrency) == int || "
            "(self.generation.workers == 1 && !has(self.generation.concurrencyShort))",
            AUTO_ALONE,
        ),
        Rule(
            "self.generation.errorPolicy.warnPercent <= self.generation.errorPolicy.pausePercent",
            "errorPolicy.warnPercent cannot be larger than errorPolicy.pausePercent",
        ),
    )

    model: Model = Field(description="The target model.")
    storage: Storage = Field(description="Volumes of the run.")
    server: SynthServer | None = Field(
        default=None, description="Servers that the operator starts; or use endpoints."
    )
    endpoints: list[SynthEndpoint] | None = Field(
        default=None,
        min_length=1,
        max_length=64,
        description="Servers that exist already; or use server.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    output: Output = Field(description="Where the answers go.")
    datasets: list[Dataset] = Field(
        min_length=1,
        max_length=64,
        description="The prompts, in named datasets.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    sampling: Sampling = Field(default_factory=Sampling, description="Sampling parameters of the run.")
    generation: Generation = Field(default_factory=Generation, description="How requests are sent.")
    resume_token: Token | None = Field(
        default=None, description="Another word here lets a paused run go on with its error policy as it is."
    )


class SynthRunStatus(RunStatus[Plan, RunProgress, RunOutput]):
    """What the operator observed; written by it alone."""

    datasets: list[DatasetProgress] = Field(
        default_factory=list,
        max_length=64,
        description="Progress of each dataset.",
        json_schema_extra=NAME_MAP,
    )


class SynthRun(ApiModel):
    """Prompts -> the target model's own answers, as exact token ids."""

    api_version: Literal["draftmill.dev/v1alpha1"] = "draftmill.dev/v1alpha1"
    kind: Literal["SynthRun"] = "SynthRun"
    metadata: dict[str, Any] = Field(default_factory=dict)
    spec: SynthRunSpec
    status: SynthRunStatus | None = None


__all__ = [
    "Compression",
    "Dataset",
    "OnChange",
    "Output",
    "Sampling",
    "SamplingOverrides",
    "SynthEndpoint",
    "SynthRun",
    "SynthRunSpec",
    "SynthRunStatus",
    "SynthServer",
    "Turns",
]
