"""What went wrong elsewhere, in public: each failure that can touch us is shown not to.

The numbers are those of the project's list, which has gaps. Where each of them is proven:

| | failure elsewhere | proven in |
|---|---|---|
| 1 | a limit on a request's time loses the longest answers | tests/unit/jobs/test_generate_failures |
| 2 | the same, at the 60 and 90 seconds of others' clients | tests/unit/jobs/test_generate_failures |
| 3 | timeouts and retries become a storm without end | tests/unit/jobs/test_generate_failures |
| 4 | retries inside retries | tests/jobs/test_generate_breaker |
| 5 | a proxy's read timeout ends long answers | here |
| 6 | going on at a number of lines loses and doubles rows | tests/jobs/test_generate_durability |
| 7 | a new line is glued onto a torn one | tests/jobs/test_generate_durability |
| 9 | rows are known by a number that a limit changes | tests/jobs/test_generate_durability |
| 10 | answers that come in another order go to the wrong rows | here |
| 11 | a run of which all is done hangs | tests/jobs/test_generate_durability |
| 12 | each failure costs a permit, and concurrency decays | tests/unit/jobs/test_generate_failures |
| 13 | answers cut by the limit are retried, then dropped | here |
| 14 | the client caps the number in flight in silence | tests/jobs/test_generate_live |
| 15 | several datasets together have too many in flight | tests/jobs/test_generate_live |
| 17 | an aborted answer is stored as a good one | here |
| 18 | the end of a server drops what is in flight | tests/jobs/test_generate_breaker |
| 20 | requests that were given up go on running | tests/unit/jobs/test_generate_failures |
| 21 | the field of the reasoning has another name, and is lost | here |
| 22 | an answer of reasoning alone breaks the reader | here |
| 23 | the think tag in the prompt or in the answer breaks targets | here |
| 25 | token counts are missing, and something divides by None | here |
| 27 | a chat template refuses roles or their order | here |
| 29 | waiting for one's own place counts as an error | tests/jobs/test_generate_servers |
| 30 | a request that is sent again is taken for the first | tests/unit/jobs/test_generate_failures |
| 31 | all is held in memory, and nothing written until the end | here |
| 32 | large bodies come at a tenth of the speed | tests/unit/jobs/test_connections |
| 33 | answers collapse or repeat themselves, and nobody is told | tests/unit/jobs/test_quality |
| 34 | with its server gone for good a job hangs | tests/jobs/test_generate_breaker |
| 35 | the route returns no token ids, which shows after hours | here |
| 36 | keys of an API stand in logs | here |
| 37 | a request's fields are not what was configured | here |
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from draftmill_api.exitcode import ExitCode
from draftmill_api.v1alpha1.shared import Engine
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.generate import retry
from draftmill_jobs.shared.redaction import RedactingFormatter
from tests.support.engine_server import EngineServer, Fail, Hold, Reply, Request, answer_ids
from tests.support.job import Job, prompts, until
from tests.support.job_pages import get, progress_when
from tests.support.ports import free_port
from tests.support.tiny_model import CLOSE, END, FIRST_NUMBER, THINK, Thinking, TinyModel

ROOT = Path(__file__).parents[3]
GOLDEN = Path(__file__).parent / "golden" / "requests"
HTML = b"<html><head><title>504 Gateway Time-out</title></head><body><hr>nginx</body></html>"
ROUTES = [
    ("VLLM", "Chat", "/v1/chat/completions"),
    ("VLLM", "Generate", "/v1/completions"),
    ("SGLang", "Generate", "/generate"),
    ("SGLang", "Chat", "/v1/chat/completions"),
]
W = FIRST_NUMBER


@pytest.fixture(autouse=True)
def short_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_BASE", 0.02)
    monkeypatch.setattr(retry, "_CAP", 0.1)


class TestProxies:
    async def test_a_timeout_of_a_proxy_is_asked_again(self, job: Job, server: EngineServer) -> None:
        """Public failure 5 (kubernetes/ingress-nginx#3976): 504 with HTML after the proxy's read timeout."""
        server.script = lambda request: Reply() if request.tries else Fail(504, HTML, delay=0.05)
        _, progress = await job.use(server).generate()
        assert (progress.ok, progress.errors, progress.retried) == (20, 0, 20)

    async def test_a_timeout_of_a_proxy_that_stays_is_told_with_its_remedy(
        self, job: Job, server: EngineServer
    ) -> None:
        """Public failure 5 (kubernetes/ingress-nginx#3976): the status says what to raise."""
        server.script = lambda request: Fail(504, HTML) if request.number == 0 or request.tries else Reply()
        job.generation = {"retries": 1}
        await job.use(server).generate()
        (letter,) = job.lines("dead_letter")
        assert (letter["reason"], letter["permanent"]) == ("proxy_timeout", False)
        assert letter["message"].startswith("HTTP 504: 504 Gateway Time-out nginx (a proxy")
        (failure,) = job.finish().failures
        assert failure.remedy == "raise the read timeout of the proxy, or give the server's own address"


class TestOrder:
    async def test_answers_go_to_their_rows_in_whatever_order_they_come(
        self, job: Job, server: EngineServer
    ) -> None:
        """Public failure 10 (distilabel#587): with the last answer first, rows were misaligned."""
        server.script = lambda _: Hold()
        async with job.use(server).generating() as task:
            await until(lambda: len(server.held) == 16)
            server.script = lambda _: Reply()
            server.held.reverse()
            server.let_go()
            await task
        asked = {line["messages"][0]["content"]: line for line in job.lines()}
        assert set(asked) == {row["prompt"] for row in job.datasets["A"]}
        for line in asked.values():
            assert line["prompt_ids"] == job.model.prompt_ids(line["messages"])
            assert line["output_ids"] == answer_ids(job.model, line["prompt_ids"])

    async def test_answers_are_on_disk_while_others_are_still_asked(
        self, job: Job, server: EngineServer
    ) -> None:
        """Public failure 31 (vllm#30268): all answers were held until the last, and a crash took them."""
        server.script = lambda request: Reply() if request.number < 12 else Hold()
        async with job.use(server).generating() as task:
            await until(lambda: (job.output / "A").exists() and len(job.lines()) == 12)
            assert len(server.held) == 8
            server.let_go()
            await task
        assert len(job.lines()) == 20


class TestLimits:
    async def test_answers_that_the_limit_cut_are_kept_and_asked_once(
        self, job: Job, server: EngineServer
    ) -> None:
        """Public failure 13 (curator#375): each cut answer was asked ten times, then dropped."""
        job.sampling = {"maxCompletionTokens": 5}
        _, progress = await job.use(server).generate()
        assert (progress.done, progress.truncated, progress.ok) == (20, 20, 0)
        assert (server.count, progress.retried) == (20, 0)
        assert {(line["status"], line["finish_reason"]) for line in job.lines()} == {("truncated", "length")}
        assert all(
            line["output_ids"] == answer_ids(job.model, line["prompt_ids"])[:5] for line in job.lines()
        )
        assert job.finish().progress.truncated == 20


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


class TestAborts:
    @pytest.mark.parametrize("word", ABORTS.values(), ids=ABORTS.keys())
    @pytest.mark.parametrize(("engine", "api"), [route[:2] for route in ROUTES])
    async def test_an_aborted_answer_is_asked_again_and_never_stored(
        self, job: Job, server: EngineServer, *, engine: str, api: str, word: Any
    ) -> None:
        """Public failure 17 (vllm#57082): HTTP 200 with an abort and a part of the ids."""
        server.script = lambda request: Reply(edit=None if request.tries else aborts(word))
        job.datasets, job.generation = {"A": prompts(3)}, {"api": api}
        _, progress = await job.use(server, engine=engine).generate()
        assert (progress.ok, progress.retried) == (3, 3)
        assert all(line["output_ids"] == answer_ids(job.model, line["prompt_ids"]) for line in job.lines())

    async def test_an_abort_for_the_row_itself_is_not_asked_again(
        self, job: Job, server: EngineServer
    ) -> None:
        """Public failure 17 (vllm#57082): an abort may say that the prompt is too long."""
        too_long = "The input (9 tokens) is longer than the model's context length (8 tokens)."
        word = {"type": "abort", "message": too_long, "status_code": 400}
        server.script = lambda _: Reply(edit=aborts(word))
        job.datasets = {"A": prompts(1)}
        await job.use(server, engine="SGLang").generate()
        (letter,) = job.lines("dead_letter")
        assert (letter["reason"], letter["permanent"], letter["tries"]) == ("context_overflow", True, 1)


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


class TestReasoning:
    @pytest.mark.parametrize("edit", MESSAGES.values(), ids=MESSAGES.keys())
    @pytest.mark.parametrize("thinking", [Thinking.OPEN_IN_PROMPT, Thinking.IN_OUTPUT])
    async def test_reasoning_is_found_whatever_its_field_is_called(
        self, tmp_path: Path, models: dict[Thinking, TinyModel], *, thinking: Thinking, edit: Any
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
        self,
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
        self, tmp_path: Path, models: dict[Thinking, TinyModel], thinking: Thinking
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


class TestCounts:
    @pytest.mark.parametrize("edit", [leaves_out, says_null, has_no_usage])
    @pytest.mark.parametrize(("engine", "api"), [route[:2] for route in ROUTES])
    async def test_tokens_that_the_server_does_not_count_are_counted(
        self, job: Job, server: EngineServer, *, engine: str, api: str, edit: Any
    ) -> None:
        """Public failure 25 (sglang#954): usage absent or null, and a rate that divides by None."""
        server.script = lambda _: Reply(edit=edit)
        job.datasets, job.generation = {"A": prompts(4)}, {"api": api}
        _, progress = await job.use(server, engine=engine).generate()
        assert (progress.ok, progress.completion_tokens, progress.average_completion_tokens) == (4, 64, 16)
        for line in job.lines():
            assert line["completion_tokens"] == len(line["output_ids"]) == 16
            assert line["prompt_tokens"] == len(line["prompt_ids"])


USER = {"role": "user", "content": "w1"}
PARTS = [{"type": "text", "text": "w1"}]
ASKED: dict[str, Any] = {
    "assistant first": {"messages": [{"role": "assistant", "content": "w2"}, USER]},
    "two users in a row": {"messages": [USER, {"role": "user", "content": "w2"}]},
    "an empty answer between": {"messages": [USER, {"role": "assistant", "content": ""}, USER]},
    "a list of parts": {"messages": [{"role": "user", "content": PARTS}]},
    "role function": {"messages": [USER, {"role": "function", "content": "w3"}]},
    "from and value": {"conversations": [{"from": "human", "value": "w4"}]},
    "JSON in a string": {"messages": json.dumps([{"role": "user", "content": "w5"}])},
}
NOT_ASKED: dict[str, Any] = {
    "system alone": {"messages": [{"role": "system", "content": "w1"}]},
    "empty": {"messages": [{"role": "user", "content": ""}]},
    "null content": {"messages": [{"role": "user", "content": None}]},
    "null": None,
    "null conversation": {"messages": None},
}
REFUSALS = [
    (400, b'{"error":{"message":"System role not supported","type":"BadRequestError","code":400}}'),
    (500, b'{"object":"error","message":"Conversation roles must alternate user/assistant","code":500}'),
]


class TestRoles:
    @pytest.mark.parametrize("engine", [engine.value for engine in Engine])
    async def test_every_shape_of_a_conversation_is_asked_or_says_why_not(
        self, job: Job, server: EngineServer, engine: str
    ) -> None:
        """Public failure 27 (sglang#892): odd roles, orders and contents ended runs or got lost."""
        job.datasets = {"A": [*ASKED.values(), *NOT_ASKED.values()]}
        _, progress = await job.use(server, engine=engine).generate()
        answered = len(ASKED) - (engine == "SGLang")  # whose template is ours, which takes no list of parts
        assert (progress.done, progress.errors) == (answered, len(ASKED) + len(NOT_ASKED) - answered)
        letters = {letter["sample_id"]: letter for letter in job.lines("dead_letter")}
        assert [letters[len(ASKED) + number]["reason"] for number in range(len(NOT_ASKED))] == [
            "unusable_row"
        ] * len(NOT_ASKED)
        assert all(letter["permanent"] and letter["message"] for letter in letters.values())
        job.finish()

    @pytest.mark.parametrize(("status", "body"), REFUSALS)
    async def test_a_refusal_of_the_template_is_the_rows_own_whatever_its_status(
        self, job: Job, server: EngineServer, *, status: int, body: bytes
    ) -> None:
        """Public failure 27 (autogen#1037): 400, and 500 on old servers, for what no further try mends."""
        server.script = lambda request: Fail(status, body) if request.number == 3 else Reply()
        _, progress = await job.use(server).generate()
        assert (progress.ok, progress.errors, progress.retried) == (19, 1, 0)
        (letter,) = job.lines("dead_letter")
        assert (letter["reason"], letter["permanent"]) == ("template_refused", True)


class WithoutIds(EngineServer):
    """Answers without token ids, to the preflight too."""

    def body(self, request: Request, reply: Reply) -> dict[str, Any]:
        body = super().body(request, reply)
        for holder in (body, *body.get("choices", ())):
            for field in ("token_ids", "response_token_ids", "output_ids"):
                if field in holder:
                    holder[field] = None
        return body


class TestRoutesWithoutIds:
    @pytest.mark.parametrize(("engine", "api"), [route[:2] for route in ROUTES])
    async def test_it_shows_before_the_first_row_on_the_route_in_use(
        self, job: Job, *, engine: str, api: str
    ) -> None:
        """Public failure 35 (sglang#7727): a server option takes the ids off one of its routes."""
        job.generation = {"api": api}
        async with WithoutIds(job.model) as server:
            with pytest.raises(JobRefusedError, match=r"has no answer .* no output") as refused:
                await job.use(server, engine=engine).generate()
        assert (refused.value.reason, refused.value.exit_code) == ("PreflightFailed", ExitCode.CONFIGURATION)
        assert server.count == 0
        assert job.lines() == job.lines("dead_letter") == []


TOKEN = "hf_aVerySecretToken123"


class TestSecrets:
    async def test_no_token_is_sent_written_logged_or_served(
        self,
        job: Job,
        server: EngineServer,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """Public failure 36 (curator#202): the key of an API stood in logged requests."""
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        echo = json.dumps({"error": f'bad request {{"Authorization": "Bearer {TOKEN}"}} of {TOKEN}'}).encode()
        server.script = lambda request: Fail(400, echo) if request.number == 0 else Hold()
        job.datasets = {"A": prompts(2)}
        caplog.handler.setFormatter(RedactingFormatter())
        caplog.set_level(logging.DEBUG)
        port = free_port()
        async with job.use(server).generating(port) as task:
            await progress_when(port, lambda seen: seen.progress.errors == 1)
            pages = [await get(port, page) for page in ("/progress", "/metrics")]
            server.let_go()
            await task
        (letter,) = job.lines("dead_letter")
        assert letter["message"] == 'HTTP 400: bad request {"Authorization": "Bearer ***"} of ***'
        written = [path.read_text(errors="replace") for path in job.output.rglob("*") if path.is_file()]
        assert not any(TOKEN in text for text in (caplog.text, *pages, *written))
        assert "Bearer ***" in caplog.text
        assert not any(TOKEN.encode() in head or b"authorization" in head.lower() for head in server.heads)
        assert TOKEN not in job.finish().model_dump_json()


class TestRequests:
    @pytest.mark.parametrize("metrics", [True, False], ids=["whole", "streamed"])
    @pytest.mark.parametrize(("engine", "api", "path"), ROUTES)
    async def test_a_request_is_what_was_reviewed(
        self, job: Job, server: EngineServer, *, engine: str, api: str, path: str, metrics: bool
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


def test_each_failure_of_the_table_is_proven_where_it_says() -> None:
    lines = (__doc__ or "").splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if re.match(r"\| [0-9]", line)]
    assert len({number for number, _, _ in rows}) == len(rows) == 31
    for number, _, place in rows:
        module = Path(__file__) if place == "here" else ROOT / f"{place}.py"
        assert f'"""Public failure {number} (' in module.read_text(), (number, place)
