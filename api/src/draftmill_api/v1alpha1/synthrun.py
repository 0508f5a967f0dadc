"""SynthRun: asks the target model every prompt and keeps the exact token ids."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, WithJsonSchema, model_validator

from draftmill_api.base import VALIDATIONS, ApiModel, Duration, Fraction, Rule, Temperature, says
from draftmill_api.v1alpha1.lifecycle import RunSpec, Token
from draftmill_api.v1alpha1.pod import PodOverrides
from draftmill_api.v1alpha1.runstatus import RunStatus
from draftmill_api.v1alpha1.shared import Endpoint, Model, RelativePath, Server, Storage
from draftmill_api.v1alpha1.source import Fields, Filters, Source
from draftmill_api.v1alpha1.status import NAME_MAP, DatasetProgress, Plan, RunOutput, RunProgress

TemplateArguments = Annotated[
    dict[str, Any],
    Field(
        json_schema_extra={
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {
                "thinking": {"type": "boolean", "description": "Reasoning of Kimi and DeepSeek models."},
                "enable_thinking": {"type": "boolean", "description": "Reasoning of Qwen3 models."},
                "reasoning_effort": {
                    "type": "string",
                    "maxLength": 32,
                    "description": "Length of the reasoning of gpt-oss models: low, medium or high.",
                },
            },
        }
    ),
]
"""Arguments of a chat template. The usual ones have types: a template takes the text "false" for true."""


class Api(StrEnum):
    """The engine's route that answers come through."""

    AUTO = "Auto"
    CHAT = "Chat"
    GENERATE = "Generate"


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


class ErrorPolicy(ApiModel):
    """When failed rows make the run say so, or pause.

    A share is that of failed rows among the last `window` rows that were asked; rows that are missing before
    the window is full count as good ones.
    """

    warn_percent: int = Field(
        default=2, ge=0, le=100, description="More failed rows than this, in percent, are a warning."
    )
    pause_percent: int = Field(
        default=5,
        ge=0,
        le=100,
        description="More failed rows than this, in percent, pause the run; 100 never does.",
    )
    window: int = Field(
        default=500, ge=10, le=1_000_000, description="Number of last asked rows that count, of each worker."
    )


class OnPause(ApiModel):
    """What happens to a run that has paused."""

    free_servers_after: Duration = Field(
        default="15m",
        description="Workers and servers are removed when the run has been paused for so long; going on is "
        "then a new attempt.",
    )


_SHORT_BELOW = (
    "generation.concurrencyShort lets short prompts go beyond generation.concurrency: it cannot be smaller"
)


AUTO: Final = "Auto"
"""The concurrency that is found by measuring."""
Concurrency = Annotated[
    Annotated[int, Field(ge=1, le=65536)] | Literal["Auto"],
    WithJsonSchema(
        {
            "x-kubernetes-int-or-string": True,
            VALIDATIONS: [
                {
                    "rule": "type(self) == int ? self >= 1 && self <= 65536 : self == 'Auto'",
                    "message": "concurrency is the number of requests in flight at once: from 1 to 65536, "
                    "or Auto",
                }
            ],
        }
    ),
]
_AUTO_ALONE = (
    "generation.concurrency Auto measures what one worker does: leave out workers and concurrencyShort"
)


class Generation(ApiModel):
    """How requests are sent."""

    api: Api = Field(
        default=Api.AUTO,
        description="Route: Chat (/v1/chat/completions), Generate (token ids in and out), or Auto: "
        "Chat on VLLM, Generate on SGLang.",
    )
    chat_template_kwargs: TemplateArguments = Field(
        default_factory=dict,
        description="Arguments of the chat template, for example thinking: true; stored with each record.",
    )
    concurrency: Concurrency = Field(
        default=128,
        description="Most requests in flight at once, over all servers, shared among the workers; or Auto: "
        "as many as bring more tokens per second, which one worker finds by measuring.",
    )
    short_prompt_tokens: int = Field(
        default=512,
        ge=1,
        le=16_777_216,
        description="With concurrencyShort, a prompt of at most so many tokens is short: tokens that the "
        "model's chat template makes of messages and tools, counted before they are sent.",
    )
    concurrency_short: int | None = Field(
        default=None,
        ge=1,
        le=65536,
        description="Most requests in flight at once when some of the prompts are short: those may go beyond "
        "concurrency, up to here, and the others may not. Left out, all prompts are treated alike.",
        json_schema_extra=says(
            "concurrencyShort is the number of requests in flight at once with short prompts among them: "
            "from 1 to 65536"
        ),
    )
    requests_per_minute: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000_000,
        description="Most requests sent in a minute, over all servers, spread evenly and shared among the "
        "workers; not limited when left out.",
    )
    tokens_per_minute: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000_000_000,
        description="Most tokens asked for in a minute, prompts and answers, over all servers, shared among "
        "the workers; an answer counts with its expected length until it is there. Not limited when "
        "left out.",
    )
    connect_timeout: Duration = Field(default="10s", description="Longest wait for a connection to a server.")
    stall_timeout: Duration = Field(
        default="600s",
        description="A request is sent again when its server has shown no sign of life for so long; "
        "there is no total timeout.",
    )
    outage_timeout: Duration = Field(
        default="1h",
        description="A worker of whose servers not one could be used for so long fails, and is started "
        "again, up to backoffLimit times.",
    )
    retries: int = Field(
        default=3,
        ge=0,
        le=100,
        description="Further tries of a row whose request failed in a way that may pass.",
    )
    error_policy: ErrorPolicy = Field(
        default_factory=ErrorPolicy,
        description="When failed rows are a warning, and when they pause it.",
    )
    on_pause: OnPause = Field(default_factory=OnPause, description="What happens to a run that has paused.")
    workers: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Number of generators that share the rows, each a Job of its own.",
    )
    pod: PodOverrides | None = Field(
        default=None, description="Overrides of the job pods: plan, generator and finish."
    )

    @model_validator(mode="after")
    def _short_prompts_have_no_lower_cap(self) -> Self:
        if self.concurrency == AUTO:
            if self.concurrency_short is not None or self.workers > 1:
                raise ValueError(_AUTO_ALONE)
        elif self.concurrency_short is not None and self.concurrency_short < self.concurrency:
            raise ValueError(_SHORT_BELOW)
        return self


class Compression(StrEnum):
    """How the files of records are compressed."""

    NONE = "None"
    ZSTD = "Zstd"


class Output(ApiModel):
    """Where the answers go."""

    path: RelativePath = Field(
        description="Folder below storage.data; each dataset gets a folder of its name inside.",
    )
    compression: Compression = Field(
        default=Compression.NONE,
        description="Compression of the files of records: None, or Zstd, which makes a third to a fifth of "
        "them and costs some CPU time. Both are read together, whatever wrote them.",
    )


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
            _SHORT_BELOW,
        ),
        Rule(
            "type(self.generation.concurrency) == int || "
            "(self.generation.workers == 1 && !has(self.generation.concurrencyShort))",
            _AUTO_ALONE,
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
    "Api",
    "Compression",
    "Dataset",
    "ErrorPolicy",
    "Generation",
    "OnPause",
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
