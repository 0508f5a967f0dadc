"""One line of `raw_responses.jsonl`, one line of `dead_letter.jsonl`, and the identity of a row."""

from __future__ import annotations

import hashlib
import json
from enum import StrEnum
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

_TURN: Final = "-t"


class Think(StrEnum):
    """Where the reasoning of an answer opens."""

    NONE = "none"
    OPEN_IN_PROMPT = "open_in_prompt"
    IN_OUTPUT = "in_output"


class RecordStatus(StrEnum):
    """What kind of answer a record holds."""

    OK = "ok"
    TRUNCATED = "truncated"
    TRUNCATED_REASONING = "truncated_reasoning"
    """Cut off by the limit while thinking was still open."""
    REPETITION = "repetition"
    MALFORMED = "malformed"
    """The number of think-end tokens is not what `think` implies."""


class FinishReason(StrEnum):
    """Why the engine stopped, in one vocabulary for all engines."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    REPETITION = "repetition"


class _Line(BaseModel):
    """snake_case JSON, keys in the order of the fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class RecordModel(_Line):
    """The model that answered."""

    name: str
    fingerprint: str


class Record(_Line):
    """A prompt and its answer, with the server's own token ids."""

    id: str
    prompt_key: str
    sample_id: int = Field(description="Position of the row in its source.")
    dataset: str
    turn: int = Field(description="Assistant turns before the answer.")
    sample: int
    prompt_ids: list[int]
    output_ids: list[int]
    prompt_tokens: int
    completion_tokens: int
    finish_reason: FinishReason
    status: RecordStatus
    think: Think
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None
    chat_template_kwargs: dict[str, Any]
    reasoning: str | None
    content: str | None
    text: str
    sampling: dict[str, Any]
    model: RecordModel
    server: str = Field(description="Name of the endpoint that answered.")
    attempt: int = Field(description="Attempt of the worker that wrote the record.")
    created: str = Field(description="RFC 3339, UTC.")
    latency_s: float


class DeadLetter(_Line):
    """A row without a record, and why."""

    id: str
    prompt_key: str | None
    sample_id: int
    dataset: str
    sample: int
    reason: str = Field(
        description="Kind of failure, snake_case: bad_request, context_overflow, unusable_row, ..."
    )
    message: str
    permanent: bool = Field(description="Asking again cannot help.")
    tries: int
    created: str
    expected_tokens: int | None = Field(
        default=None,
        description="That its answer was to be expected to have; none of a row that was never asked, nor of "
        "letters written before these two were.",
    )
    prompt_bytes: int | None = Field(
        default=None, description="Of its messages as JSON; none where there are no expected_tokens."
    )


def canonical_json(value: Any) -> bytes:
    """One byte string for equal values: sorted keys, no spaces, UTF-8."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def prompt_key(
    messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None, chat_template_kwargs: dict[str, Any]
) -> str:
    """The identity of a prompt: equal prompts have equal keys, whatever their place in the source."""
    return hashlib.sha256(canonical_json([messages, tools, chat_template_kwargs])).hexdigest()[:32]


def row_id(key: str, sample: int, turn: int | None = None) -> str:
    """The identity of a row; sample 0 is bare, so that asking for more samples keeps it.

    Args:
        key: The prompt's.
        sample: Number of the answer to it.
        turn: Number of the turn where every turn of a conversation is a row; None where the last one is.
    """
    name = key if turn is None else f"{key}{_TURN}{turn}"
    return name if sample == 0 else f"{name}-s{sample}"


def conversation_key(
    identity: str,
    messages: list[dict[str, Any]],
    tools: list[dict[str, Any]] | None,
    chat_template_kwargs: dict[str, Any],
) -> str | None:
    """What the rows of one conversation have in common, all its turns and samples; None of a row of its own.

    It is the key of what stands before the first answer to a user: of the first turn's prompt, which holds no
    answer of the model's own, so that it is the same in every sample.

    Args:
        identity: The row's.
        messages: Its prompt, as it was asked.
        tools: As they were asked with.
        chat_template_kwargs: Likewise.
    """
    if _TURN not in identity:
        return None
    roles = [message["role"] for message in messages]
    start = roles.index("user")
    end = roles.index("assistant", start) if "assistant" in roles[start:] else len(roles)
    return prompt_key(messages[:end], tools, chat_template_kwargs)


def split_row_id(identity: str) -> tuple[str, int]:
    """The prompt's key and the number of the sample of a row's identity."""
    name, _, sample = identity.partition("-s")
    return name.partition(_TURN)[0], int(sample or 0)
