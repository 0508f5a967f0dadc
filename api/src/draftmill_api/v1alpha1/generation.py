"""How a SynthRun asks: the route, how much at once, how long it waits, and when failed rows stop it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, WithJsonSchema, model_validator

from draftmill_api.base import VALIDATIONS, ApiModel, Duration, says
from draftmill_api.v1alpha1.pod import PodOverrides

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
AUTO_ALONE: Final = (
    "generation.concurrency Auto measures what one worker does: leave out workers and concurrencyShort"
)
"""Said of Auto with what it does not go with."""
SHORT_BELOW: Final = (
    "generation.concurrencyShort lets short prompts go beyond generation.concurrency: it cannot be smaller"
)
"""Said of a smaller one."""


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
                raise ValueError(AUTO_ALONE)
        elif self.concurrency_short is not None and self.concurrency_short < self.concurrency:
            raise ValueError(SHORT_BELOW)
        return self
