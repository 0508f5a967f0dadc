"""Reasoning, wherever the server puts it and wherever the think tag stands: records are made of token ids."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.engine_server import EngineServer, Reply, answer_ids
from tests.support.job import Job, prompts
from tests.support.tiny_model import CLOSE, END, FIRST_NUMBER, THINK, Thinking, TinyModel

W = FIRST_NUMBER


def message_of(**fields: Any) -> Callable[[dict[str, Any]], None]:
    """Gives the message of a chat answer these fields."""
    return lambda body: body["choices"][0].update(message={"role": "assistant", **fields})


MESSAGES = {
    "reasoning": message_of(content="after", reasoning="before"),
    "reasoning_content": message_of(content="after", reasoning_content="before"),
    "both": message_of(content="after", reasoning="before", reasoning_content="before"),
    "both null": message_of(content="after", reasoning=None, reasoning_content=None),
    "in model_extra": message_of(content="after", model_extra={"reasoning_content": "before"}),
    "reasoning alone": message_of(content=None, reasoning="before"),
    "neither": message_of(content=None),
    "no message": lambda body: body["choices"][0].pop("message"),
}


@pytest.mark.parametrize("edit", MESSAGES.values(), ids=MESSAGES.keys())
@pytest.mark.parametrize("thinking", [Thinking.OPEN_IN_PROMPT, Thinking.IN_OUTPUT])
async def test_reasoning_is_found_whatever_its_field_is_called(
    tmp_path: Path, models: dict[Thinking, TinyModel], *, thinking: Thinking, edit: Any
) -> None:
    """Public failure 21 (vllm#33402): reasoning moved from field to field, and was silently None."""
    job = Job(tmp_path / "job", models[thinking], datasets={"A": prompts(2)})
    async with EngineServer(job.model, lambda _: Reply(edit=edit)) as server:
        await job.use(server).generate()
    for line in job.lines():
        ids = answer_ids(job.model, line["prompt_ids"])
        end = ids.index(CLOSE)
        assert line["output_ids"] == ids
        assert line["text"] == job.model.text(ids[:-1])
        assert line["reasoning"] == job.model.text([token for token in ids[:end] if token != THINK])
        assert line["content"] == job.model.text(ids[end + 1 : -1])


@pytest.mark.parametrize(
    ("ids", "finish", "edit", "expected"),
    [
        ([W, W + 1], "length", message_of(content=None, reasoning="x"), ("truncated_reasoning", None)),
        ([W, END], "stop", message_of(content=None, reasoning="x"), ("malformed", None)),
        ([W, CLOSE, END], "stop", message_of(content="", reasoning="x"), ("ok", "")),
        ([CLOSE, END], "stop", message_of(content="", reasoning=None), ("ok", "")),
        ([END], "stop", message_of(content=""), ("malformed", None)),
        ([W, CLOSE], "length", message_of(content=None, reasoning="x"), ("truncated", "")),
    ],
    ids=["cut in it", "never closed", "nothing after it", "empty", "nothing at all", "cut at its end"],
)
async def test_an_answer_of_reasoning_alone_is_a_record_of_its_kind(
    tmp_path: Path,
    models: dict[Thinking, TinyModel],
    *,
    ids: Any,
    finish: str,
    edit: Any,
    expected: Any,
) -> None:
    """Public failure 22 (vllm#33764): content is null or empty, and there may be no think-end token."""
    job = Job(tmp_path / "job", models[Thinking.OPEN_IN_PROMPT], datasets={"A": prompts(1)})
    async with EngineServer(job.model, lambda _: Reply(ids=ids, finish=finish, edit=edit)) as server:
        _, progress = await job.use(server).generate()
    (line,) = job.lines()
    assert progress.done == 1
    assert (line["status"], line["content"]) == expected
    assert line["output_ids"] == ids
    assert line["reasoning"] == job.model.text([token for token in ids if token >= W])


@pytest.mark.parametrize("thinking", [Thinking.OPEN_IN_PROMPT, Thinking.IN_OUTPUT])
async def test_ids_are_stored_byte_for_byte_wherever_the_think_tag_stands(
    tmp_path: Path, models: dict[Thinking, TinyModel], thinking: Thinking
) -> None:
    """Public failure 23 (SpecForge#296): one text, two tokenisations, targets rebuilt of the text."""
    said = [W, W + 1, CLOSE, W + 2, END]
    ids = said if thinking is Thinking.OPEN_IN_PROMPT else [THINK, *said]
    job = Job(tmp_path / "job", models[thinking], datasets={"A": prompts(1)})
    async with EngineServer(job.model, lambda _: Reply(ids=ids)) as server:
        await job.use(server).generate()
    written = (job.output / "A" / "raw_responses.jsonl").read_text()
    assert f'"output_ids":{json.dumps(ids, separators=(",", ":"))},' in written
    (line,) = job.lines()
    assert (line["think"], line["status"]) == (thinking.value, "ok")
    assert line["prompt_ids"] + line["output_ids"] == [
        *job.model.prompt_ids(line["messages"]),
        *([] if thinking is Thinking.OPEN_IN_PROMPT else [THINK]),
        *said,
    ]
    assert (line["reasoning"], line["content"]) == ("w0 w1", "w2")
