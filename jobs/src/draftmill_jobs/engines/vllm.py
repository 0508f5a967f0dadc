"""vLLM: chat completions, and completions of token ids; both return the exact ids on request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson

from draftmill_jobs.engines.base import Answer, Ask, Route, StreamingRoute
from draftmill_jobs.engines.openai import (
    STREAMED,
    chat_fields,
    merge_chunks,
    read_choice,
    sampling_fields,
)


class VllmChat(StreamingRoute):
    """`/v1/chat/completions`: the server applies the chat template."""

    path = "/v1/chat/completions"
    sends_ids = False

    def body(self, ask: Ask) -> bytes:
        """The request's JSON."""
        return orjson.dumps(_chat_fields(ask))

    def streaming_body(self, ask: Ask) -> bytes:
        """The same, streamed."""
        return orjson.dumps(_chat_fields(ask) | STREAMED)

    def answer(self, ask: Ask, payload: dict[str, Any]) -> Answer:  # noqa: ARG002 - other routes need the question
        """Reads a whole answer."""
        return read_choice(payload, ids_field="token_ids")

    def merge(self, events: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Joins streamed chunks."""
        return merge_chunks(events)


class VllmCompletions(Route):
    """`/v1/completions` with a prompt of token ids: whole answers alone."""

    path = "/v1/completions"
    sends_ids = True

    def body(self, ask: Ask) -> bytes:
        """The request's JSON."""
        return orjson.dumps(_completion_fields(ask))

    def answer(self, ask: Ask, payload: dict[str, Any]) -> Answer:  # noqa: ARG002 - other routes need the question
        """Reads a whole answer."""
        return read_choice(payload, ids_field="token_ids")


class VllmGenerate(VllmCompletions, StreamingRoute):
    """The same, streamed where that is wanted: the chat template is applied here."""

    def streaming_body(self, ask: Ask) -> bytes:
        """The same, streamed."""
        return orjson.dumps(_completion_fields(ask) | STREAMED)

    def merge(self, events: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Joins streamed chunks."""
        return merge_chunks(events)


_EXACT: Final = {"spaces_between_special_tokens": False}
"""Fields that keep the text what the tokens say."""


def _chat_fields(ask: Ask) -> dict[str, Any]:
    return chat_fields(ask) | {"request_id": ask.request_id} | _EXACT


def _completion_fields(ask: Ask) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "model": ask.model,
        "prompt": ask.prompt_ids,
        "request_id": ask.request_id,
        "return_token_ids": True,
        **sampling_fields(ask),
        **_EXACT,
    }
    fields["max_tokens"] = fields.pop("max_completion_tokens")
    return fields
