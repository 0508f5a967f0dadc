"""The rows of a dataset: whose columns are called otherwise, filtered, shuffled, cut to a number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill_api.jobconfig import SynthJobConfig
from draftmill_api.record import prompt_key
from draftmill_jobs.prompts.reading import DatasetRows
from draftmill_jobs.prompts.sources.shuffling import shuffled
from draftmill_jobs.shared.settings import datasets_of

USER, ANSWER = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}
SYSTEM, TOOL = {"role": "system", "content": "be kind"}, {"role": "tool", "content": "7"}
TOOLS = [{"type": "function", "function": {"name": "f"}}]


def dataset_rows(folder: Path, rows: list[Any], **fields: Any) -> DatasetRows:
    path = folder / "rows.jsonl"
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    config = SynthJobConfig.model_validate(
        {
            "model": {"name": "m", "path": "/m"},
            "output": {"path": str(folder / "out")},
            "datasets": [{"name": "A", "source": {"file": {"path": str(path)}}, **fields}],
        }
    )
    (dataset,) = datasets_of(config)
    return DatasetRows(dataset)


def in_order(count: int, seed: int) -> list[int]:
    return [int(position) for position in shuffled(np.arange(count, dtype=np.uint64), seed)]


def messages_of(rows: DatasetRows) -> list[Any]:
    return [row.prompt.messages if row.prompt is not None else row.problem for row in rows]


RENAMED: dict[str, tuple[dict[str, str], dict[str, Any], list[dict[str, Any]]]] = {
    "a conversation": ({"messages": "chat"}, {"chat": [SYSTEM, USER, ANSWER]}, [SYSTEM, USER]),
    "a conversation as JSON": ({"messages": "chat"}, {"chat": json.dumps([USER, ANSWER])}, [USER]),
    "beside another one": ({"messages": "chat"}, {"messages": [TOOL], "chat": [USER]}, [USER]),
    "inside an object": ({"messages": "body.messages"}, {"body": {"messages": [USER]}}, [USER]),
    "with a dot in its name": ({"messages": "a.b"}, {"a.b": [USER]}, [USER]),
    "a prompt": ({"prompt": "query"}, {"query": "hi", "prompt": "not this"}, [USER]),
    "a prompt and a system prompt": (
        {"prompt": "query", "system": "rules"},
        {"query": "hi", "rules": "be kind"},
        [SYSTEM, USER],
    ),
    "a conversation and a system prompt": (
        {"messages": "chat", "system": "rules"},
        {"chat": [USER], "rules": "be kind"},
        [SYSTEM, USER],
    ),
    "a system prompt that is there already": (
        {"system": "rules"},
        {"messages": [SYSTEM, USER], "rules": "be cruel"},
        [SYSTEM, USER],
    ),
    "a system prompt that a row lacks": ({"system": "rules"}, {"messages": [USER]}, [USER]),
    "turns": (
        {"messages": "chat", "role": "who", "content": "what"},
        {"chat": [{"who": "human", "what": "hi"}, {"who": "gpt", "what": "ho"}]},
        [USER],
    ),
    "turns of a column that is found by its name": (
        {"role": "who", "content": "what"},
        {"conversations": json.dumps([{"who": "user", "what": "hi"}])},
        [USER],
    ),
}


@pytest.mark.parametrize("what", RENAMED)
def test_columns_may_have_other_names(tmp_path: Path, what: str) -> None:
    fields, row, expected = RENAMED[what]
    rows = dataset_rows(tmp_path, [row], fields=fields)
    (read,) = rows
    assert read.prompt is not None
    assert read.prompt.messages == expected
    assert read.key == prompt_key(expected, None, {}), "the same prompt has the same identity in every source"


def test_tools_may_be_called_otherwise(tmp_path: Path) -> None:
    rows = dataset_rows(
        tmp_path,
        [{"chat": [USER], "functions": json.dumps(TOOLS)}, {"chat": [USER]}],
        fields={"messages": "chat", "tools": "functions"},
    )
    assert [row.prompt.tools for row in rows if row.prompt] == [TOOLS, None]
    assert rows.unseen_fields == {}


def test_a_column_that_a_row_lacks_makes_it_unusable_and_says_what_there_is(tmp_path: Path) -> None:
    rows = dataset_rows(tmp_path, [{"text": "hi", "id": 1}], fields={"messages": "chat"})
    (said,) = messages_of(rows)
    assert said == "fields.messages is chat, which is not among its fields (id, text)"


def test_fields_whose_column_no_row_has_are_known_in_the_end(tmp_path: Path) -> None:
    given_fields = {"prompt": "q", "tools": "functoins", "system": "rules", "role": "who"}
    rows = dataset_rows(tmp_path, [{"q": "hi"}, {"q": "ho", "rules": "be kind"}], fields=given_fields)
    assert len(list(rows)) == 2
    assert rows.unseen_fields == {"tools": "functoins", "role": "who"}


LONG = {"role": "user", "content": "h" * 100}
PICTURE = {"type": "image_url", "image_url": {}}
PARTS = {"role": "user", "content": [{"type": "text", "text": "h" * 100}, PICTURE]}
FILTERED: dict[str, tuple[dict[str, Any], list[list[dict[str, Any]]], list[bool]]] = {
    "characters of all turns": (
        {"minCharacters": 6, "maxCharacters": 106},
        [[USER], [USER, ANSWER, USER], [USER, ANSWER, LONG], [LONG, ANSWER, LONG], [PARTS]],
        [False, True, True, False, True],
    ),
    "turns of the user": (
        {"minTurns": 2, "maxTurns": 2},
        [[USER], [USER, ANSWER, USER], [USER, USER], [USER, ANSWER, USER, ANSWER, USER]],
        [False, True, True, False],
    ),
    "starts with the user": (
        {"roles": "StartsWithUser"},
        [[USER], [SYSTEM, USER], [ANSWER, USER], [SYSTEM, ANSWER, USER], [USER, USER], [USER, ANSWER, TOOL]],
        [True, True, False, False, True, True],
    ),
    "alternating": (
        {"roles": "Alternating"},
        [[USER], [SYSTEM, USER, ANSWER, USER], [USER, USER], [ANSWER, USER], [USER, ANSWER, TOOL]],
        [True, True, False, False, False],
    ),
}


@pytest.mark.parametrize("what", FILTERED)
def test_filters_take_some_prompts_and_count_the_others(tmp_path: Path, what: str) -> None:
    filters, prompts, taken = FILTERED[what]
    rows = dataset_rows(tmp_path, [{"messages": prompt} for prompt in prompts], filters=filters)
    assert messages_of(rows) == [prompt for prompt, is_taken in zip(prompts, taken, strict=True) if is_taken]
    assert rows.filtered == taken.count(False)


def test_rows_without_a_prompt_are_not_filtered_for_they_are_errors(tmp_path: Path) -> None:
    rows = dataset_rows(tmp_path, [{"no": 1}, "{", {"prompt": "hi"}], filters={"minCharacters": 10})
    assert [row.position for row in rows] == [0, 1]
    assert rows.filtered == 1


def test_the_number_is_that_of_the_rows_left_and_they_keep_their_positions(tmp_path: Path) -> None:
    prompts = [{"prompt": "long enough" if number % 3 == 0 else "no"} | {"n": number} for number in range(30)]
    fields = {"filters": {"minCharacters": 5}, "maxSamples": 4}
    rows = dataset_rows(tmp_path, prompts, **fields)
    assert [row.position for row in rows] == [0, 3, 6, 9]
    assert rows.filtered == 6, "of those that were looked at"
    mixed = dataset_rows(tmp_path, prompts, shuffleSeed=7, **fields)
    positions = [row.position for row in mixed]
    assert positions == [position for position in in_order(30, 7) if position % 3 == 0][:4]
    assert positions == [row.position for row in mixed], "and again"
    assert [row.position for row in mixed.read(sorted(positions[1:]))] == positions[1:]


def test_a_row_that_cannot_be_written_as_json_is_no_end_of_the_run(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text('[{"prompt": "\\ud800"}, {"prompt": "hi"}]')
    rows = dataset_rows(tmp_path, [], source={"file": {"path": str(path)}})
    first, second = rows
    assert first.problem.startswith("not JSON: ")
    assert second.prompt is not None


def test_the_order_is_the_seeds_alone() -> None:
    assert in_order(12, 0) == [11, 5, 7, 8, 2, 10, 9, 0, 3, 1, 6, 4]
    assert in_order(12, 1) == [3, 1, 9, 7, 0, 11, 6, 4, 5, 8, 10, 2]


@given(count=st.integers(0, 200), more=st.integers(0, 50), seed=st.integers(0, 2**31 - 1))
def test_rows_that_are_added_leave_the_order_of_the_others(count: int, more: int, seed: int) -> None:
    order = in_order(count + more, seed)
    assert sorted(order) == list(range(count + more))
    assert [position for position in order if position < count] == in_order(count, seed)
