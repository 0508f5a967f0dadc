"""vLLM: chat completions, and completions of token ids; both return the exact ids on request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from draftmill_jobs.engines.base import Answer, Ask
from draftmill_jobs.engines.openai import (
    STREAM_OPTIONS,
    chat_fields,
    merge_chunks,
    read_choice,
    sampling_fields,
)


class VllmChat:
    """`/v1/chat/completions`: the server applies the chat template."""

    path = "/v1/chat/completions"
    sends_ids = False
    streams = True

    def body(self, ask: Ask, *, stream: bool) -> bytes:
        """The request's JSON."""
        fields = chat_fields(ask) | {"request_id": ask.request_id}
        if stream:
            fields |= {"stream": True, "stream_options": STREAM_OPTIONS}
        return orjson.dumps(fields)

    def answer(self, ask: Ask, payload: dict[str, Any]) -> Answer:  # noqa: ARG002 - other routes need the question
        """Reads a whole answer."""
        return read_choice(payload, ids_field="token_ids")

    def merge(self, events: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Joins streamed chunks."""
        return merge_chunks(events)


class VllmGenerate:
    """`/v1/completions` with a prompt of token ids: the chat template is applied here."""

    path = "/v1/completions"
    sends_ids = True
    streams = True

    def body(self, ask: Ask, *, stream: bool) -> bytes:
        """The request's JSON."""
        fields: dict[str, Any] = {
            "model": ask.model,
            "prompt": ask.prompt_ids,
            "request_id": ask.request_id,
            "return_token_ids": True,
            **sampling_fields(ask),
        }
        fields["max_tokens"] = fields.pop("max_completion_tokens")
        if stream:
            fields |= {"stream": True, "stream_options": STREAM_OPTIONS}
        return orjson.dumps(fields)

    def answer(self, ask: Ask, payload: dict[str, Any]) -> Answer:  # noqa: ARG002 - other routes need the question
        """Reads a whole answer."""
        return read_choice(payload, ids_field="token_ids")

    def merge(self, events: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Joins streamed chunks."""
        return merge_chunks(events)
