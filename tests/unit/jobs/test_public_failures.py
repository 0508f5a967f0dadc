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
| 17 | an aborted answer is stored as a good one | tests/unit/jobs/test_generate_routes |
| 18 | the end of a server drops what is in flight | tests/jobs/test_generate_breaker |
| 20 | requests that were given up go on running | tests/unit/jobs/test_generate_failures |
| 21 | the field of the reasoning has another name, and is lost | tests/unit/jobs/test_generate_reasoning |
| 22 | an answer of reasoning alone breaks the reader | tests/unit/jobs/test_generate_reasoning |
| 23 | the think tag in the prompt or in the answer breaks targets | tests/unit/jobs/test_generate_reasoning |
| 25 | token counts are missing, and something divides by None | tests/unit/jobs/test_generate_routes |
| 27 | a chat template refuses roles or their order | here |
| 29 | waiting for one's own place counts as an error | tests/jobs/test_generate_servers |
| 30 | a request that is sent again is taken for the first | tests/unit/jobs/test_generate_failures |
| 31 | all is held in memory, and nothing written until the end | here |
| 32 | large bodies come at a tenth of the speed | tests/unit/jobs/test_connections |
| 33 | answers collapse or repeat themselves, and nobody is told | tests/unit/jobs/test_quality |
| 34 | with its server gone for good a job hangs | tests/jobs/test_generate_breaker |
| 35 | the route returns no token ids, which shows after hours | tests/unit/jobs/test_generate_routes |
| 36 | keys of an API stand in logs | here |
| 37 | a request's fields are not what was configured | tests/unit/jobs/test_generate_routes |
"""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from draftmill_api.v1alpha1.shared import Engine
from draftmill_jobs.generate import retry
from draftmill_jobs.shared.redaction import RedactingFormatter
from tests.support.engine_server import EngineServer, Fail, Hold, Reply, answer_ids
from tests.support.job import Job, prompts, until
from tests.support.job_pages import get, progress_when
from tests.support.ports import free_port

ROOT = Path(__file__).parents[3]
HTML = b"<html><head><title>504 Gateway Time-out</title></head><body><hr>nginx</body></html>"


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


def test_each_failure_of_the_table_is_proven_where_it_says() -> None:
    lines = (__doc__ or "").splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if re.match(r"\| [0-9]", line)]
    assert len({number for number, _, _ in rows}) == len(rows) == 31
    for number, _, place in rows:
        module = Path(__file__) if place == "here" else ROOT / f"{place}.py"
        assert f'"""Public failure {number} (' in module.read_text(), (number, place)
