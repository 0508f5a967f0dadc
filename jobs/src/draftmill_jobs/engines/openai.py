"""What the OpenAI-style routes of both engines have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from draftmill_jobs.engines.base import (
    Answer,
    Ask,
    check_counts,
    finish_reason,
    list_of,
    object_of,
    stated_count,
    text_of,
    token_ids,
)
from draftmill_jobs.engines.failures import FailureKind, RequestFailedError

STREAMED: Final = {"stream": True, "stream_options": {"include_usage": True}}
"""Fields that ask for a streamed answer."""


def sampling_fields(ask: Ask) -> dict[str, Any]:
    """Sampling as these routes name it, and that the text shall have its special tokens."""
    fields: dict[str, Any] = {**ask.sampling, "n": 1, "skip_special_tokens": False}
    if ask.stop_ids:
        fields["stop_token_ids"] = list(ask.stop_ids)
    return fields


def read_choice(payload: dict[str, Any], *, ids_field: str) -> Answer:
    """Reads the one choice of an answer.

    Args:
        payload: The answer's JSON.
        ids_field: Where the engine puts the ids of the answer.

    Raises:
        RequestFailedError: The answer was aborted, lacks token ids, or has another form.
    """
    choices = payload.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        raise RequestFailedError(FailureKind.INVALID_RESPONSE, "the answer has not exactly one choice")
    choice = choices[0]
    finish = finish_reason(choice.get("finish_reason"))
    usage = object_of(payload.get("usage"), "usage")
    prompt_ids = payload.get("prompt_token_ids") or choice.get("prompt_token_ids")
    answer = Answer(
        prompt_ids=token_ids(prompt_ids, "prompt token ids"),
        output_ids=token_ids(choice.get(ids_field), "output token ids"),
        finish=finish,
        text=_text(choice),
        stated_prompt_tokens=stated_count(usage.get("prompt_tokens"), "prompt_tokens"),
        stated_completion_tokens=stated_count(usage.get("completion_tokens"), "completion_tokens"),
    )
    return check_counts(answer)


def _text(choice: dict[str, Any]) -> str | None:
    """The text, unless a parser of the server has taken parts out of it."""
    message = object_of(choice.get("message"), "message")
    if not message:
        text = choice.get("text")
    elif message.get("reasoning") or message.get("reasoning_content") or message.get("tool_calls"):
        text = None
    else:
        text = message.get("content")
    return text if isinstance(text, str) else None


def chat_fields(ask: Ask) -> dict[str, Any]:
    """The fields of a chat request that both engines read alike."""
    fields: dict[str, Any] = {
        "model": ask.model,
        "messages": ask.messages,
        "return_token_ids": True,
        **sampling_fields(ask),
    }
    if ask.tools:
        fields["tools"] = ask.tools
    if ask.template_arguments:
        fields["chat_template_kwargs"] = ask.template_arguments
    return fields


def merge_chunks(events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Brings streamed chunks, whose ids and texts are increments, to the form of a whole answer.

    Raises:
        RequestFailedError: A chunk has another form.
    """
    payload: dict[str, Any] = {"usage": None}
    ids: list[int] = []
    texts: list[str] = []
    parsed = False
    choice: dict[str, Any] = {"finish_reason": None}
    for event in events:
        payload["usage"] = event.get("usage") or payload["usage"]
        if event.get("prompt_token_ids"):
            payload["prompt_token_ids"] = event["prompt_token_ids"]
        for item in list_of(event.get("choices"), "choices"):
            part = object_of(item, "choice")
            delta = object_of(part.get("delta"), "delta")
            parsed = parsed or bool(
                delta.get("reasoning") or delta.get("reasoning_content") or delta.get("tool_calls")
            )
            ids.extend(list_of(part.get("token_ids"), "token_ids"))
            texts.append(text_of(delta.get("content") or part.get("text"), "text"))
            choice["finish_reason"] = part.get("finish_reason") or choice["finish_reason"]
            if part.get("prompt_token_ids"):
                payload["prompt_token_ids"] = part["prompt_token_ids"]
    choice["token_ids"] = ids
    choice["message"] = {"content": None if parsed else "".join(texts)}
    payload["choices"] = [choice]
    return payload
