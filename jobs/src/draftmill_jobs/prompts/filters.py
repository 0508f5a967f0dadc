"""Which prompts are taken. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Any, assert_never

from draftmill_api.v1alpha1.source import Filters, RoleShape

_NOTHING = Filters()


def passes(messages: Sequence[dict[str, Any]], filters: Filters) -> bool:
    """Whether the messages of a prompt pass every filter."""
    if filters == _NOTHING:
        return True
    turns = sum(message["role"] == "user" for message in messages)
    return (
        _is_within(turns, filters.min_turns, filters.max_turns)
        and _is_within(_characters(messages), filters.min_characters, filters.max_characters)
        and _has_shape([message["role"] for message in messages], filters.roles)
    )


def _is_within(number: int, least: int | None, most: int | None) -> bool:
    return (least is None or number >= least) and (most is None or number <= most)


def _characters(messages: Sequence[dict[str, Any]]) -> int:
    """Characters of the text of all turns; of a list of parts, those of its text parts."""
    return sum(_text_length(message.get("content")) for message in messages)


def _text_length(content: Any) -> int:
    if isinstance(content, str):
        return len(content)
    parts = content if isinstance(content, list) else []
    return sum(len(part.get("text") or "") if isinstance(part, dict) else len(str(part)) for part in parts)


def _has_shape(roles: Sequence[str], shape: RoleShape) -> bool:
    spoken = roles[1:] if roles and roles[0] == "system" else roles
    match shape:
        case RoleShape.ANY:
            return True
        case RoleShape.STARTS_WITH_USER:
            return bool(spoken) and spoken[0] == "user"
        case RoleShape.ALTERNATING:
            alternating = zip(spoken, cycle(("user", "assistant")), strict=False)
            return len(spoken) % 2 == 1 and all(role == expected for role, expected in alternating)
        case _:
            assert_never(shape)
