"""SGLang: `/generate` with token ids, and its chat route; both return the exact ids on request."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import orjson

from draftmill_jobs.engines.base import (
    Answer,
    Ask,
    Route,
    StreamingRoute,
    check_counts,
    finish_reason,
    list_of,
    object_of,
    stated_count,
    text_of,
    token_ids,
)
from draftmill_jobs.engines.failures import FailureKind, RequestFailedError
from draftmill_jobs.engines.openai import chat_fields, read_choice

_EXACT = {"skip_special_tokens": False, "spaces_between_special_tokens": False}  # the text as the tokens say
_NAMES = {"max_completion_tokens": "max_new_tokens", "seed": "sampling_seed"}


class SglangGenerate(StreamingRoute):
    """`/generate` with `input_ids`: the chat template is applied here."""

    path = "/generate"
    sends_ids = True

    def body(self, ask: Ask) -> bytes:
        """The request's JSON."""
        return _generate_body(ask, stream=False)

    def streaming_body(self, ask: Ask) -> bytes:
        """The same, streamed."""
        return _generate_body(ask, stream=True)

    def answer(self, ask: Ask, payload: dict[str, Any]) -> Answer:
        """Reads a whole answer; prompt ids that come back are compared with those sent."""
        meta = object_of(payload.get("meta_info"), "meta_info")
        finish = finish_reason(meta.get("finish_reason"))
        returned = payload.get("prompt_token_ids")
        if returned is not None and token_ids(returned, "prompt token ids") != ask.prompt_ids:
            raise RequestFailedError(
                FailureKind.COUNT_MISMATCH,
                f"the server answered another prompt: {len(ask.prompt_ids)} ids sent, {len(returned)} back",
            )
        text = payload.get("text")
        answer = Answer(
            prompt_ids=ask.prompt_ids,
            output_ids=token_ids(payload.get("output_ids"), "output_ids"),
            finish=finish,
            text=None if text is None else text_of(text, "text"),
            stated_prompt_tokens=stated_count(meta.get("prompt_tokens"), "prompt_tokens"),
            stated_completion_tokens=stated_count(
                meta.get("completion_tokens"), "meta_info.completion_tokens"
            ),
        )
        return check_counts(answer)

    def replaces(self, event: dict[str, Any], earlier: dict[str, Any]) -> bool:
        """Always, unless the server streams increments: then an event has fewer ids than it counts."""
        stated = object_of(event.get("meta_info"), "meta_info").get("completion_tokens")
        is_cumulative = stated is None or len(list_of(event.get("output_ids"), "output_ids")) == stated
        has_prompt = earlier.get("prompt_token_ids") is None or event.get("prompt_token_ids") is not None
        return is_cumulative and has_prompt

    def merge(self, events: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The last event holds everything, unless the server was started to stream increments."""
        if not events:
            return {}
        last = dict(events[-1])
        for event in events:
            if event.get("prompt_token_ids") is not None:
                last["prompt_token_ids"] = event["prompt_token_ids"]
        stated = object_of(last.get("meta_info"), "meta_info").get("completion_tokens")
        parts = [list_of(event.get("output_ids"), "output_ids") for event in events]
        if stated is not None and len(parts[-1]) != stated:
            last["output_ids"] = list(chain.from_iterable(parts))
            last["text"] = "".join(text_of(event.get("text"), "text") for event in events)
        return last


class SglangChat(Route):
    """`/v1/chat/completions`: the server applies the chat template; ids come with whole answers only."""

    path = "/v1/chat/completions"
    sends_ids = False

    def body(self, ask: Ask) -> bytes:
        """The request's JSON."""
        fields = chat_fields(ask) | {"rid": ask.request_id, "separate_reasoning": False}
        return orjson.dumps(fields)

    def answer(self, ask: Ask, payload: dict[str, Any]) -> Answer:  # noqa: ARG002 - other routes need the question
        """Reads a whole answer."""
        return read_choice(payload, ids_field="response_token_ids")


def _generate_body(ask: Ask, *, stream: bool) -> bytes:
    sampling = {_NAMES.get(name, name): value for name, value in ask.sampling.items()} | _EXACT
    if ask.stop_ids:
        sampling["stop_token_ids"] = list(ask.stop_ids)
    fields = {
        "rid": ask.request_id,
        "input_ids": ask.prompt_ids,
        "sampling_params": sampling,
        "return_prompt_token_ids": True,
        "stream": stream,
    }
    return orjson.dumps(fields)
