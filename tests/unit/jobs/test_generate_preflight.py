"""No row is spent on an endpoint that says other things than the records would hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from draftmill_api.exitcode import ExitCode
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.generate.outlook import Outlook
from tests.support.engine_server import EngineServer, Reply, Script, answer_ids
from tests.support.job import Job
from tests.support.tiny_model import CLOSE, END, Thinking, TinyModel


class LyingServer(EngineServer):
    """Changes what it answers to the preflight too."""

    lie: Any = None

    def body(self, request: Any, reply: Reply) -> dict[str, Any]:
        body = super().body(request, reply)
        self.lie(body)
        return body


def other_prompt(body: dict[str, Any]) -> None:
    body["prompt_token_ids"] = body["prompt_token_ids"][1:]
    body["usage"]["prompt_tokens"] -= 1


def other_prompt_of_generate(body: dict[str, Any]) -> None:
    body["prompt_token_ids"] = [*body["prompt_token_ids"][:-1], END]


def no_ids(body: dict[str, Any]) -> None:
    body["choices"][0]["token_ids"] = None


def no_stop_token(body: dict[str, Any]) -> None:
    choice = body["choices"][0]
    choice["token_ids"] = choice["token_ids"][:-1] or choice["token_ids"]
    choice["finish_reason"] = "stop"
    del body["usage"]


def closes_thinking(body: dict[str, Any]) -> None:
    body["choices"][0]["token_ids"] = [CLOSE, CLOSE, 20, END]
    del body["usage"]


LIES = {
    "prompt ids": (other_prompt, r"disagrees on prompt ids .*gives \[1, 6, 9, .*it gives \[6, 9, "),
    "stop token": (no_stop_token, r"disagrees on stop token: .*names \[2\], its answer stopped with "),
}


@pytest.mark.parametrize(("lie", "message"), LIES.values(), ids=LIES.keys())
async def test_a_disagreement_ends_the_run_with_both_values(job: Job, lie: Any, message: str) -> None:
    async with LyingServer(job.model) as server:
        server.lie = lie
        with pytest.raises(JobRefusedError, match=message) as refused:
            await job.use(server).generate()
    assert refused.value.reason == "PreflightFailed"
    assert refused.value.exit_code is ExitCode.CONFIGURATION
    assert server.count == 0
    assert job.lines() == []


async def test_sglangs_answer_to_another_prompt_ends_the_run(job: Job) -> None:
    async with LyingServer(job.model) as server:
        server.lie = other_prompt_of_generate
        with pytest.raises(JobRefusedError, match="the server answered another prompt: 10 ids sent, 10 back"):
            await job.use(server, engine="SGLang").generate()
    assert server.count == 0


async def test_sglangs_answer_to_another_prompt_is_no_answer_of_the_row(
    job: Job, server: EngineServer
) -> None:
    server.script = lambda request: Reply(edit=other_prompt_of_generate if request.number == 3 else None)
    job.generation = {"retries": 0}
    _, progress = await job.use(server, engine="SGLang").generate()
    assert (progress.ok, progress.errors) == (19, 1)
    (letter,) = job.lines("dead_letter")
    assert letter["reason"] == "count_mismatch"
    assert "the server answered another prompt" in letter["message"]


async def test_thinking_that_is_closed_twice_fails_the_preflight(
    tmp_path: Path, models: dict[Thinking, TinyModel]
) -> None:
    job = Job(tmp_path / "job", models[Thinking.OPEN_IN_PROMPT])
    async with LyingServer(job.model) as server:
        server.lie = closes_thinking
        with pytest.raises(JobRefusedError, match=r"open_in_prompt, thinking is closed 2 times"):
            await job.use(server).generate()


async def test_a_server_without_token_ids_is_refused(job: Job) -> None:
    async with LyingServer(job.model) as server:
        server.lie = no_ids
        job.generation = {"retries": 0}
        with pytest.raises(JobRefusedError, match="the answer has no output token ids"):
            await job.use(server).generate()
    assert server.count == 0


async def test_a_context_shorter_than_the_answers_is_refused(job: Job, server: EngineServer) -> None:
    server.context_length = 64
    with pytest.raises(JobRefusedError, match=r"maxCompletionTokens is 64, .* is 64"):
        await job.use(server).generate()


async def test_another_model_is_refused_with_both_names(
    job: Job, server: EngineServer, model: TinyModel
) -> None:
    server.model = TinyModel(model.path, name="other")
    with pytest.raises(JobRefusedError, match=r"model\.name is tiny, it serves other"):
        await job.use(server).generate()


async def test_an_answer_that_stops_by_itself_ends_with_the_models_stop_token(
    job: Job, server: EngineServer
) -> None:
    await job.use(server).generate()
    assert all(line["output_ids"][-1] == END for line in job.lines())
    assert answer_ids(job.model, job.lines()[0]["prompt_ids"])[-1] == END


async def test_how_fast_a_lone_request_is_is_measured(
    job: Job, server: EngineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixteen tokens take a second more than one, and all that a request takes besides does not count."""
    told = list[float]()
    monkeypatch.setattr(Outlook, "alone", lambda _, tokens_per_second: told.append(tokens_per_second))
    server.preflight = lambda request: Reply(delay=0.05 if request.payload.get("stop_token_ids") else 1.05)
    await job.use(server).generate()
    assert told == [pytest.approx(15, rel=0.3)]


async def test_the_wait_for_a_place_is_no_time_of_the_request(
    job: Job, server: EngineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = list[float]()
    monkeypatch.setattr(Outlook, "alone", lambda _, tokens_per_second: told.append(tokens_per_second))
    job.generation = {"concurrency": 1}
    async with EngineServer(job.model) as slower:
        server.preflight, slower.preflight = _taking(0.8), _taking(1.2)
        await job.use(server, slower).generate()
    assert sorted(told) == [pytest.approx(15 / seconds, rel=0.2) for seconds in (1.2, 0.8)]


def _taking(seconds: float) -> Script:
    """Of more than one token, so many seconds more."""
    return lambda request: Reply(delay=0.05 if request.payload.get("stop_token_ids") else 0.05 + seconds)
