"""Each route of each engine: what is sent on it, and what becomes of answers that lack something."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from draftmill_api.exitcode import ExitCode
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.generate import retry
from tests.support.engine_server import EngineServer, Reply, Request, answer_ids
from tests.support.job import Job, prompts

GOLDEN = Path(__file__).parent / "golden" / "requests"
ROUTES = [
    ("VLLM", "Chat", "/v1/chat/completions"),
    ("VLLM", "Generate", "/v1/completions"),
    ("SGLang", "Generate", "/generate"),
    ("SGLang", "Chat", "/v1/chat/completions"),
]


@pytest.fixture(autouse=True)
def short_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_BASE", 0.02)
    monkeypatch.setattr(retry, "_CAP", 0.1)


@pytest.mark.parametrize("metrics", [True, False], ids=["whole", "streamed"])
@pytest.mark.parametrize(("engine", "api", "path"), ROUTES)
async def test_a_request_is_what_was_reviewed(
    job: Job, server: EngineServer, *, engine: str, api: str, path: str, metrics: bool
) -> None:
    """Public failure 37 (SpecForge): one sampling parameter was sent under another one's name.

    `UPDATE_GOLDEN=1 pytest ...` writes the files anew.
    """
    server.metrics = metrics
    tools = [{"type": "function", "function": {"name": "f"}}]
    job.datasets = {"A": [{"prompt": "w1", "tools": tools}]}
    job.sampling |= {"temperature": "1.7", "topP": "0.9", "topK": 5, "minP": "0.1", "seed": 3}
    job.generation = {"api": api, "chatTemplateKwargs": {"thinking": True}}
    await job.use(server, engine=engine).generate()
    (request,) = server.requests
    payload = dict(request.payload)
    name = "rid" if engine == "SGLang" else "request_id"
    assert payload.pop(name).startswith(f"{job.lines()[0]['id']}-"), "another one for each try"
    asked = {"path": request.path, name: "<id>-<try>", **payload}
    golden = GOLDEN / f"{engine.lower()}-{api.lower()}{'' if payload.get('stream') else '-whole'}.json"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(json.dumps(asked, indent=2) + "\n")
    assert request.path == path
    assert asked == json.loads(golden.read_text())


def aborts(word: Any, *, partial: bool = True) -> Callable[[dict[str, Any]], None]:
    """Makes an answer an aborted one, with some of its ids."""

    def edit(body: dict[str, Any]) -> None:
        place = body["meta_info"] if "meta_info" in body else body["choices"][0]
        place["finish_reason"] = word
        for holder in (body, *body.get("choices", ())):
            for ids in ("token_ids", "response_token_ids", "output_ids"):
                if ids in holder and partial:
                    holder[ids] = holder[ids][:2]

    return edit


ABORTS = {
    "word": "abort",
    "object": {"type": "abort"},
    "object with its reason": {"type": "abort", "message": "Abort in waiting queue", "status_code": None},
    "object with a status": {"type": "abort", "message": "The request queue is full.", "status_code": 503},
}


@pytest.mark.parametrize("word", ABORTS.values(), ids=ABORTS.keys())
@pytest.mark.parametrize(("engine", "api"), [route[:2] for route in ROUTES])
async def test_an_aborted_answer_is_asked_again_and_never_stored(
    job: Job, server: EngineServer, *, engine: str, api: str, word: Any
) -> None:
    """Public failure 17 (vllm#57082): HTTP 200 with an abort and a part of the ids."""
    server.script = lambda request: Reply(edit=None if request.tries else aborts(word))
    job.datasets, job.generation = {"A": prompts(3)}, {"api": api}
    _, progress = await job.use(server, engine=engine).generate()
    assert (progress.ok, progress.retried) == (3, 3)
    assert all(line["output_ids"] == answer_ids(job.model, line["prompt_ids"]) for line in job.lines())


async def test_an_abort_for_the_row_itself_is_not_asked_again(job: Job, server: EngineServer) -> None:
    """Public failure 17 (vllm#57082): an abort may say that the prompt is too long."""
    too_long = "The input (9 tokens) is longer than the model's context length (8 tokens)."
    word = {"type": "abort", "message": too_long, "status_code": 400}
    server.script = lambda _: Reply(edit=aborts(word))
    job.datasets = {"A": prompts(1)}
    await job.use(server, engine="SGLang").generate()
    (letter,) = job.lines("dead_letter")
    assert (letter["reason"], letter["permanent"], letter["tries"]) == ("context_overflow", True, 1)


def leaves_out(body: dict[str, Any]) -> None:
    body.pop("usage", None)
    for count in ("prompt_tokens", "completion_tokens"):
        body.get("meta_info", {}).pop(count, None)


def says_null(body: dict[str, Any]) -> None:
    counts = {"prompt_tokens": None, "completion_tokens": None}
    if "meta_info" in body:
        body["meta_info"] |= counts
    else:
        body["usage"] = counts


def has_no_usage(body: dict[str, Any]) -> None:
    body["usage"] = None
    if "meta_info" in body:
        body["meta_info"] = {"finish_reason": body["meta_info"]["finish_reason"]}


@pytest.mark.parametrize("edit", [leaves_out, says_null, has_no_usage])
@pytest.mark.parametrize(("engine", "api"), [route[:2] for route in ROUTES])
async def test_tokens_that_the_server_does_not_count_are_counted(
    job: Job, server: EngineServer, *, engine: str, api: str, edit: Any
) -> None:
    """Public failure 25 (sglang#954): usage absent or null, and a rate that divides by None."""
    server.script = lambda _: Reply(edit=edit)
    job.datasets, job.generation = {"A": prompts(4)}, {"api": api}
    _, progress = await job.use(server, engine=engine).generate()
    assert (progress.ok, progress.completion_tokens, progress.average_completion_tokens) == (4, 64, 16)
    for line in job.lines():
        assert line["completion_tokens"] == len(line["output_ids"]) == 16
        assert line["prompt_tokens"] == len(line["prompt_ids"])


class WithoutIds(EngineServer):
    """Answers without token ids, to the preflight too."""

    def body(self, request: Request, reply: Reply) -> dict[str, Any]:
        body = super().body(request, reply)
        for holder in (body, *body.get("choices", ())):
            for field in ("token_ids", "response_token_ids", "output_ids"):
                if field in holder:
                    holder[field] = None
        return body


@pytest.mark.parametrize(("engine", "api"), [route[:2] for route in ROUTES])
async def test_it_shows_before_the_first_row_on_the_route_in_use(job: Job, *, engine: str, api: str) -> None:
    """Public failure 35 (sglang#7727): a server option takes the ids off one of its routes."""
    job.generation = {"api": api}
    async with WithoutIds(job.model) as server:
        with pytest.raises(JobRefusedError, match=r"has no answer .* no output") as refused:
            await job.use(server, engine=engine).generate()
    assert (refused.value.reason, refused.value.exit_code) == ("PreflightFailed", ExitCode.CONFIGURATION)
    assert server.count == 0
    assert job.lines() == job.lines("dead_letter") == []
