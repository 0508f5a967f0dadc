"""A record as a row of another program's input. Pure.

speculators: `input_ids` and `loss_mask` are taken as they are; the other fields are for people
(`response_regeneration` writes the same).

SpecForge: its online training takes `input_ids` and `loss_mask` as they are; `prepare_hidden_states.py` reads
`conversations`, to which it applies its own chat template.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from typing import Any, Final, get_args, get_origin

import orjson

from draftmill_api.record import Record, RecordStatus

TRAINED: Final = frozenset({RecordStatus.OK, RecordStatus.TRUNCATED, RecordStatus.TRUNCATED_REASONING})
"""Answers that a drafter learns from: the model's own words as far as they go."""

_OF_A_TURN: Final = ("tool_call_id", "reasoning_content", "name")


class NotTextError(Exception):
    """A turn holds something that is not text."""


def to_speculators(record: Record) -> dict[str, Any]:
    """A row for speculators: exact ids, and a mask that is 1 on the answer."""
    return {
        "id": _id(record),
        "primary_id": f"{record.dataset}/{record.prompt_key}",
        **_tokens(record),
        "text": record.text,
        "metadata": {
            "finish_reason": record.finish_reason,
            "status": record.status,
            "endpoint": record.server,
            "sampling_params": _json(record.sampling),
        },
    }


def to_specforge(record: Record) -> dict[str, Any]:
    """A row for SpecForge's online training: exact ids, and a mask that is 1 on the answer."""
    return {"id": _id(record), **_tokens(record)}


def to_specforge_chat(record: Record) -> dict[str, Any]:
    """A row for SpecForge's own tokenisation, which may give other ids than the model did.

    Raises:
        NotTextError: A turn has parts that are not text.
    """
    answer = {"role": "assistant", "content": record.content or ""}
    if record.reasoning:
        answer["reasoning_content"] = record.reasoning
    turns = [_turn(message) for message in record.messages]
    return {"id": _id(record), "conversations": [*turns, answer], "tools": _json(record.tools or [])}


@cache
def column_kinds() -> dict[str, str]:
    """Each field of a record as a column: text, int, float, ids, or json where its shape varies."""
    return {name: _kind(field.annotation) for name, field in Record.model_fields.items()}


def to_columns(record: Record) -> dict[str, Any]:
    """A record with the fields whose shape varies as JSON text."""
    kinds, values = column_kinds(), record.model_dump(mode="json")
    return {
        name: _json(value) if kinds[name] == "json" and value is not None else value
        for name, value in values.items()
    }


def _id(record: Record) -> str:
    return f"{record.dataset}/{record.id}"


def _tokens(record: Record) -> dict[str, list[int]]:
    return {
        "input_ids": [*record.prompt_ids, *record.output_ids],
        "loss_mask": [0] * len(record.prompt_ids) + [1] * len(record.output_ids),
    }


def _turn(message: dict[str, Any]) -> dict[str, str]:
    """A turn of fields that are text, for columns have one type."""
    turn = {"role": message["role"], "content": _text(message.get("content"))}
    turn |= {name: str(message[name]) for name in _OF_A_TURN if message.get(name) is not None}
    if message.get("tool_calls"):
        turn["tool_calls"] = _json(message["tool_calls"])
    return turn


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    parts = [part.get("text") if isinstance(part, dict) else part for part in content]
    texts = [part for part in parts if isinstance(part, str)]
    if len(texts) < len(parts):
        raise NotTextError("a turn has parts that are not text")
    return "".join(texts)


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


def _kind(annotation: Any) -> str:
    inner = [each for each in get_args(annotation) if each is not type(None)]
    if get_origin(annotation) is list:
        return "ids" if inner == [int] else "json"
    if get_origin(annotation) is not None and len(inner) == 1:  # or None
        return _kind(inner[0])
    if isinstance(annotation, type):
        for kind, types in (("text", (str, StrEnum)), ("int", (int,)), ("float", (float,))):
            if issubclass(annotation, types):
                return kind
    return "json"
