"""The wire formats of vLLM and SGLang as their servers write them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Answered:
    """What a server has to say."""

    prompt_ids: list[int]
    ids: list[int]
    text: str
    finish: str


def sglang_body(answered: Answered, request_id: str) -> dict[str, Any]:
    """The answer of `/generate`."""
    reason: dict[str, Any] = {"type": answered.finish}
    if answered.finish == "abort":
        reason["message"] = "made to abort"
    return {
        "text": answered.text,
        "output_ids": answered.ids,
        "prompt_token_ids": answered.prompt_ids,
        "meta_info": {
            "id": request_id,
            "finish_reason": reason,
            "prompt_tokens": len(answered.prompt_ids),
            "completion_tokens": len(answered.ids),
        },
    }


def sglang_chat_body(answered: Answered, model: str) -> dict[str, Any]:
    """The answer of SGLang's chat route: all ids lie in the choice, under names of its own."""
    choice = {
        "index": 0,
        "message": {
            "role": "assistant",
            "content": answered.text,
            "reasoning_content": None,
            "tool_calls": None,
        },
        "finish_reason": answered.finish,
        "matched_stop": None,
        "prompt_token_ids": answered.prompt_ids,
        "response_token_ids": answered.ids,
    }
    usage = {"prompt_tokens": len(answered.prompt_ids), "completion_tokens": len(answered.ids)}
    return {"id": "chatcmpl", "model": model, "choices": [choice], "usage": usage}


def openai_body(answered: Answered, model: str, *, chat: bool) -> dict[str, Any]:
    """The answer of vLLM's chat route or of that of completions."""
    choice: dict[str, Any] = {
        "index": 0,
        "finish_reason": answered.finish,
        "stop_reason": None,
        "token_ids": answered.ids,
    }
    body: dict[str, Any] = {
        "id": "cmpl",
        "model": model,
        "choices": [choice],
        "usage": {"prompt_tokens": len(answered.prompt_ids), "completion_tokens": len(answered.ids)},
    }
    if chat:
        choice["message"] = {
            "role": "assistant",
            "content": answered.text,
            "reasoning": None,
            "tool_calls": [],
        }
        body["prompt_token_ids"] = answered.prompt_ids
    else:
        choice["text"] = answered.text
        choice["prompt_token_ids"] = answered.prompt_ids
    return body


def openai_events(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The same answer as a stream of increments, a token each."""
    choice = body["choices"][0]
    ids, text = choice["token_ids"], (choice.get("message") or {}).get("content", choice.get("text"))
    first = {"prompt_token_ids": body.get("prompt_token_ids", choice.get("prompt_token_ids"))}
    middle = [{"choices": [{"index": 0, "delta": {}, "token_ids": [token]}]} for token in ids]
    last = {
        "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": choice["finish_reason"]}],
    }
    return [{**first, "choices": []}, *middle, last, {"choices": [], "usage": body["usage"]}]


def sglang_events(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The same answer as a stream whose events each hold all that came so far."""
    ids = body["output_ids"]
    halves = [ids[: len(ids) // 2], ids]
    return [
        {**body, "output_ids": part, "meta_info": {**body["meta_info"], "completion_tokens": len(part)}}
        for part in halves
    ]


def metrics_page(generated: int, running: int) -> bytes:
    """The few figures of `/metrics` that are read, under both engines' names."""
    lines = [
        f'{engine}:{name}{{model_name="tiny"}} {value}'
        for engine, names in (
            ("vllm", ("generation_tokens_total", "num_requests_running", "num_requests_waiting")),
            ("sglang", ("generation_tokens_total", "num_running_reqs", "num_queue_reqs")),
        )
        for name, value in zip(names, (float(generated), running, 0), strict=True)
    ]
    return ("\n".join(lines) + "\n").encode()


def response_head(status: int, length: int, headers: tuple[str, ...] = ()) -> bytes:
    """Status line and headers of an answer with a body of so many bytes."""
    lines = [f"HTTP/1.1 {status} Made", f"Content-Length: {length}", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()
