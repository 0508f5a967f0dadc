"""The shapes in which people keep prompts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from draftmill_jobs.prompts.shapes import UnusableRowError, read_prompt, read_turns

USER = {"role": "user", "content": "hello"}
SHAPES = {
    "messages": {"messages": [USER]},
    "messages as text": {"messages": json.dumps([USER])},
    "messages with an answer": {"messages": [USER, {"role": "assistant", "content": "hi"}]},
    "from and value": {
        "conversations": [{"from": "human", "value": "hello"}, {"from": "gpt", "value": "hi"}]
    },
    "role and content": {"conversations": [USER]},
    "conversation": {"conversation": [USER]},
    "prompt": {"prompt": "hello"},
    "prompt of messages": {"prompt": [USER]},
    "instruction": {"instruction": "hello"},
    "instruction with empty input": {"instruction": "hello", "input": ""},
    "question": {"question": "hello", "answer": "hi"},
    "columns that are null": {"messages": None, "prompt": "hello", "tools": None},
    "turns with null fields": {"messages": [{**USER, "tool_calls": None, "name": None}]},
}


@pytest.mark.parametrize("row", SHAPES.values(), ids=SHAPES.keys())
def test_each_shape_is_the_same_question(row: dict[str, Any]) -> None:
    prompt = read_prompt(row)
    assert prompt.messages == [USER]
    assert prompt.tools is None


def test_instruction_and_input_are_joined() -> None:
    assert read_prompt({"instruction": "sum", "input": "1 2"}).messages[0]["content"] == "sum\n\n1 2"


def test_a_system_prompt_goes_first() -> None:
    roles = [message["role"] for message in read_prompt({"prompt": "a", "system": "b"}).messages]
    assert roles == ["system", "user"]


def test_a_conversation_is_asked_from_its_last_question() -> None:
    turns = [USER, {"role": "assistant", "content": "hi"}, USER, {"role": "assistant", "content": "ho"}]
    prompt = read_prompt({"messages": turns})
    assert prompt.messages == turns[:3]
    assert prompt.turn == 1


def test_tool_results_are_answered_and_tools_kept() -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}
    tools = [{"type": "function"}]
    row = {"messages": [USER, call, {"from": "function", "value": "4"}], "tools": json.dumps(tools)}
    prompt = read_prompt(row)
    assert [message["role"] for message in prompt.messages] == ["user", "assistant", "tool"]
    assert prompt.messages[1]["tool_calls"] == [{"id": "1"}]
    assert prompt.tools == tools


UNUSABLE: dict[str, tuple[Any, str]] = {
    "no object": (["a"], "must be an object, this one is list"),
    "null": (None, "this one is null"),
    "nothing known": ({"text": "a"}, r"no messages, .* \(text\)"),
    "system only": ({"messages": [{"role": "system", "content": "a"}]}, "nothing to ask"),
    "assistant only": ({"messages": [{"role": "assistant", "content": "a"}]}, "nothing to ask"),
    "empty list": ({"messages": []}, "nothing to ask"),
    "empty content": ({"messages": [{"role": "user", "content": " "}]}, "the last turn of the user is empty"),
    "unknown role": ({"messages": [{"role": "narrator", "content": "a"}]}, "unknown role 'narrator'"),
    "content null": ({"messages": [{"role": "user", "content": None}]}, "content of a turn of user is null"),
    "turn is text": ({"messages": ["a"]}, "a turn must be an object"),
    "broken text": ({"conversations": "[{"}, "conversations is text but not JSON"),
    "prompt is a number": ({"prompt": 3}, "prompt must be text, it is int"),
    "tools are no list": ({"prompt": "a", "tools": {"a": 1}}, "tools must be a list"),
}


@pytest.mark.parametrize(("row", "reason"), UNUSABLE.values(), ids=UNUSABLE.keys())
def test_a_row_that_cannot_be_asked_says_why(row: Any, reason: str) -> None:
    with pytest.raises(UnusableRowError, match=reason):
        read_prompt(row)


ANSWER = {"role": "assistant", "content": "hi"}
SYSTEM = {"role": "system", "content": "be brief"}
CALL = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}
RESULT = {"role": "tool", "content": "4"}
CONVERSATIONS: dict[str, tuple[list[dict[str, Any]], list[int]]] = {
    "one question": ([USER], [1]),
    "a question and its answer": ([USER, ANSWER], [1]),
    "two turns": ([SYSTEM, USER, ANSWER, USER, ANSWER], [2, 4]),
    "a question at the end": ([USER, ANSWER, USER], [1, 3]),
    "an answer first": ([ANSWER, USER, ANSWER, USER], [2, 4]),
    "two questions in a row": ([USER, USER, ANSWER, USER], [2, 4]),
    "two answers in a row": ([USER, ANSWER, ANSWER, USER], [1, 4]),
    "a tool": ([USER, CALL, RESULT, ANSWER, USER], [1, 3, 5]),
    "two results of tools": ([USER, CALL, RESULT, RESULT, ANSWER], [1, 4]),
    "a system's word between": ([USER, SYSTEM, ANSWER, USER], [4]),
}


@pytest.mark.parametrize(("messages", "ends"), CONVERSATIONS.values(), ids=CONVERSATIONS.keys())
def test_every_turn_is_asked_with_all_that_stands_before_it(
    messages: list[dict[str, Any]], ends: list[int]
) -> None:
    turns = read_turns({"messages": messages})
    assert [turn.messages for turn in turns] == [messages[:end] for end in ends]
    assert turns[-1] == read_prompt({"messages": messages})


def test_a_conversation_with_an_empty_question_says_which() -> None:
    empty = {"role": "user", "content": " "}
    with pytest.raises(UnusableRowError, match="turn 2 of the user is empty"):
        read_turns({"messages": [USER, ANSWER, empty, ANSWER, USER]})


@pytest.mark.parametrize(("row", "reason"), UNUSABLE.values(), ids=UNUSABLE.keys())
def test_a_row_without_a_prompt_has_no_turns(row: Any, reason: str) -> None:
    with pytest.raises(UnusableRowError, match=reason.replace("the last turn", "turn 1")):
        read_turns(row)
