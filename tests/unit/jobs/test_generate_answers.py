"""A record holds what the server sent, whatever the engine, the route and the model's way of thinking."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from draftmill_api.exitcode import ExitCode
from draftmill_api.record import Record
from draftmill_jobs.generate import keeper
from tests.support.engine_server import EngineServer, Reply, answer_ids
from tests.support.job import Job, prompts, unique
from tests.support.tiny_model import THINK, Thinking, TinyModel

ROUTES = [
    # engine, api, path, whether an answer with ids can be streamed
    ("VLLM", "Auto", "/v1/chat/completions", True),
    ("VLLM", "Generate", "/v1/completions", True),
    ("SGLang", "Auto", "/generate", True),
    ("SGLang", "Chat", "/v1/chat/completions", False),
]


@pytest.mark.parametrize("metrics", [True, False], ids=["whole", "streamed"])
@pytest.mark.parametrize(("engine", "api", "path", "streams"), ROUTES)
async def test_every_route_gives_the_servers_own_ids(
    job: Job, server: EngineServer, *, engine: str, api: str, path: str, streams: bool, metrics: bool
) -> None:
    server.metrics = metrics
    job.use(server, engine=engine).generation = {"api": api}
    code, progress = await job.generate()
    assert code is ExitCode.DONE
    assert (progress.done, progress.ok, progress.total) == (20, 20, 20)
    assert {request.path for request in server.requests} == {path}
    assert {bool(request.payload.get("stream")) for request in server.requests} == {streams and not metrics}
    for line in job.lines():
        record = Record.model_validate(line)
        assert list(line) == list(Record.model_fields)
        assert record.prompt_ids == server.model.prompt_ids(record.messages)
        assert record.output_ids == answer_ids(server.model, record.prompt_ids)
        assert record.completion_tokens == len(record.output_ids)
        assert record.text == record.content == server.model.text(record.output_ids[:-1])


async def test_a_server_whose_metrics_hang_is_asked_for_streamed_answers(
    job: Job, server: EngineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "_FIRST_LOOK", 0.1)
    server.unanswered = {"/metrics"}

    code, progress = await job.use(server).generate()

    assert (code, progress.ok) == (ExitCode.DONE, 20)
    assert all(request.payload.get("stream") for request in server.requests)


@pytest.mark.parametrize("thinking", [Thinking.OPEN_IN_PROMPT, Thinking.IN_OUTPUT])
async def test_reasoning_is_told_from_content_by_ids(
    tmp_path: Path, models: dict[Thinking, TinyModel], thinking: Thinking
) -> None:
    job = Job(tmp_path / "job", models[thinking])
    async with EngineServer(job.model) as server:
        await job.use(server).generate()
    for line in job.lines():
        assert (line["think"], line["status"]) == (thinking.value, "ok")
        assert len(line["reasoning"].split()) == 4 - (thinking is Thinking.IN_OUTPUT)
        assert len(line["content"].split()) == 10
        assert line["output_ids"] == answer_ids(job.model, line["prompt_ids"])
        assert line["text"] == job.model.text(line["output_ids"][:-1]), "all but the stop token"
        opened = "<think> " if thinking is Thinking.IN_OUTPUT else ""
        assert line["text"] == f"{opened}{line['reasoning']} </think> {line['content']}"


async def test_an_answer_cut_while_thinking_is_kept_and_told_apart(
    tmp_path: Path, models: dict[Thinking, TinyModel]
) -> None:
    job = Job(tmp_path / "job", models[Thinking.OPEN_IN_PROMPT], sampling={"maxCompletionTokens": 3})
    async with EngineServer(job.model) as server:
        _, progress = await job.use(server).generate()
        assert server.count == 20, "a truncated answer is asked once"
    assert (progress.truncated, progress.ok, progress.errors) == (20, 0, 0)
    assert {line["status"] for line in job.lines()} == {"truncated_reasoning"}


async def test_a_second_think_token_is_malformed(tmp_path: Path, models: dict[Thinking, TinyModel]) -> None:
    job = Job(tmp_path / "job", models[Thinking.OPEN_IN_PROMPT])
    async with EngineServer(job.model, lambda _: Reply(ids=[20, 21, 2])) as server:
        _, progress = await job.use(server).generate()
    assert (progress.malformed, progress.done, progress.errors) == (20, 20, 0)
    assert THINK in job.lines()[0]["prompt_ids"]


async def test_a_count_that_differs_from_the_ids_is_no_answer(job: Job, server: EngineServer) -> None:
    def miscount(body: dict[str, Any]) -> None:
        body["usage"]["completion_tokens"] += 1

    server.script = lambda request: Reply(edit=miscount if request.number == 3 else None)
    job.generation = {"retries": 0}
    _, progress = await job.use(server).generate()
    assert (progress.ok, progress.errors) == (19, 1)
    (letter,) = job.lines("dead_letter")
    assert letter["reason"] == "count_mismatch"
    assert not letter["permanent"]


async def test_samples_of_a_prompt_have_ids_and_seeds_of_their_own(job: Job, server: EngineServer) -> None:
    job.datasets = {"A": prompts(5)}
    job.sampling |= {"samplesPerPrompt": 3, "seed": 7, "topK": 5, "minP": "0.1"}
    _, progress = await job.use(server).generate()
    assert progress.total == progress.done == 15
    lines = job.lines()
    unique(lines)
    for line in lines:
        sample = line["sample"]
        assert line["id"] == line["prompt_key"] + (f"-s{sample}" if sample else "")
        assert line["sampling"]["seed"] == 7 + sample
        assert (line["sampling"]["top_k"], line["sampling"]["min_p"]) == (5, 0.1)


async def test_bodies_of_five_megabytes_arrive_whole(job: Job, server: EngineServer) -> None:
    server.script = lambda _: Reply(padding=5_000_000, delay=0.05)
    job.datasets = {"A": prompts(8)}
    _, progress = await job.use(server).generate()
    assert (progress.ok, progress.retried) == (8, 0)
