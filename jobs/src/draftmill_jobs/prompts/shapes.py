"""The shapes in which people keep prompts, brought to chat messages. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

_ROLES = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "chatgpt": "assistant",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
    "function_response": "tool",
}
_ASKING = {"user", "tool"}


class UnusableRowError(Exception):
    """A row that cannot be asked, with the reason in a sentence."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the model is asked: messages that end with a turn of the user or a tool."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None

    @property
    def turn(self) -> int:
        """Assistant turns before the answer."""
        return sum(message["role"] == "assistant" for message in self.messages)


def read_prompt(row: Any) -> Prompt:
    """Finds the prompt in a source row; the answers after its last question are left out.

    Raises:
        UnusableRowError: There is none.
    """
    messages, tools = _conversation(row)
    _check_question(messages, "the last turn of the user")
    return Prompt(messages, tools)


def read_turns(row: Any) -> list[Prompt]:
    """Finds every prompt in a conversation: what stands before each of its answers, and the last question.

    Each begins with the one before it.

    Raises:
        UnusableRowError: There is none, or one of them is empty.
    """
    messages, tools = _conversation(row)
    prompts = [messages[:end] for end in range(1, len(messages) + 1) if _is_answered_next(messages, end)]
    for number, prompt in enumerate(prompts, start=1):
        _check_question(prompt, f"turn {number} of the user")
    return [Prompt(prompt, tools) for prompt in prompts]


def _conversation(row: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]] | None]:
    """The messages up to the last question, and the tools."""
    if not isinstance(row, dict):
        raise UnusableRowError(f"a row must be an object, this one is {_kind(row)}")
    messages = [_message(turn) for turn in _turns(row)]
    while messages and messages[-1]["role"] not in _ASKING:
        messages.pop()
    if not any(message["role"] == "user" for message in messages):
        raise UnusableRowError("no turn of the user: there is nothing to ask")
    return messages, _tools(row.get("tools"))


def _is_answered_next(messages: list[dict[str, Any]], end: int) -> bool:
    """Whether the first `end` messages ask something that the next one answers, or nobody does."""
    asks = messages[end - 1]["role"] in _ASKING
    is_next = end == len(messages) or messages[end]["role"] == "assistant"
    return asks and is_next and any(message["role"] == "user" for message in messages[:end])


def _check_question(messages: list[dict[str, Any]], what: str) -> None:
    if messages[-1]["role"] == "user" and _is_empty(messages[-1].get("content")):
        raise UnusableRowError(f"{what} is empty")


def _turns(row: dict[str, Any]) -> list[Any]:
    for name in ("messages", "conversations", "conversation"):
        if row.get(name) is not None:
            return _list(row[name], name)
    prompt = row.get("prompt")
    if isinstance(prompt, list):
        return prompt
    if prompt is not None:
        return _asked(row, _text(prompt, "prompt"))
    if row.get("instruction") is not None:
        parts = [_text(row[name], name) for name in ("instruction", "input") if row.get(name)]
        return _asked(row, "\n\n".join(parts))
    if row.get("question") is not None:
        return _asked(row, _text(row["question"], "question"))
    known = ", ".join(sorted(str(name) for name in row)) or "none"
    raise UnusableRowError(
        f"no messages, conversations, prompt, instruction or question among its fields ({known[:200]})"
    )


def _asked(row: dict[str, Any], text: str) -> list[dict[str, str]]:
    turns = [{"role": "user", "content": text}]
    if row.get("system"):
        turns.insert(0, {"role": "system", "content": _text(row["system"], "system")})
    return turns


def _message(turn: Any) -> dict[str, Any]:
    if not isinstance(turn, dict):
        raise UnusableRowError(f"a turn must be an object, this one is {_kind(turn)}")
    said = turn.get("role", turn.get("from"))
    role = _ROLES.get(said) if isinstance(said, str) else None
    if role is None:
        raise UnusableRowError(f"unknown role {said!r}")
    content = turn.get("content", turn.get("value"))
    if not isinstance(content, (str, list)) and not (content is None and role == "assistant"):
        raise UnusableRowError(f"the content of a turn of {role} is {_kind(content)}")
    rest = {
        name: value
        for name, value in turn.items()
        if name not in {"role", "from", "content", "value"} and value is not None
    }
    return {"role": role, "content": content, **rest}


def _list(value: Any, name: str) -> list[Any]:
    if isinstance(value, str):
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError as error:
            raise UnusableRowError(f"{name} is text but not JSON: {error}") from error
    if not isinstance(value, list):
        raise UnusableRowError(f"{name} must be a list, it is {_kind(value)}")
    return value


def _tools(value: Any) -> list[dict[str, Any]] | None:
    if not value:
        return None
    tools = _list(value, "tools")
    if not all(isinstance(tool, dict) for tool in tools):
        raise UnusableRowError("tools must be a list of objects")
    return tools or None


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise UnusableRowError(f"{name} must be text, it is {_kind(value)}")
    return value


def _is_empty(content: Any) -> bool:
    return not content or (isinstance(content, str) and not content.strip())


def _kind(value: Any) -> str:
    return "null" if value is None else type(value).__name__
