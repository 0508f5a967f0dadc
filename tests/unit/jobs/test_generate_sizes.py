"""Short prompts go beyond the cap that holds long ones back, and no row is lost or forgotten for it."""

from __future__ import annotations

import os
import signal
from collections import Counter
from typing import Any

import pytest

from draftmill_api.exitcode import ExitCode
from draftmill_api.progress import WorkerState
from tests.support.engine_server import EngineServer, Hold, Reply
from tests.support.job import Job, prompts, unique, until
from tests.support.job_pages import progress_when
from tests.support.ports import free_port

SHORT_TOKENS = 7  # <|im_start|> user w0 w1 <|im_end|> <|im_start|> assistant
LONG, BEYOND = 4, 2


def long_prompts(count: int) -> list[dict[str, Any]]:
    return [{"prompt": f"w{i} w1 w2"} for i in range(count)]


@pytest.fixture
def sized(job: Job, server: EngineServer) -> Job:
    """Ten long rows before ten short ones, all of which the server holds."""
    server.script = lambda _: Hold()
    job.datasets = {"A": [*long_prompts(10), *prompts(10)]}
    job.generation = {
        "concurrency": LONG,
        "concurrencyShort": LONG + BEYOND,
        "shortPromptTokens": SHORT_TOKENS,
        "connectTimeout": "30s",
    }
    return job.use(server)


def asked(server: EngineServer) -> Counter[str]:
    """How many of each size the server was asked."""
    lengths = (len(request.prompt_ids) for request in server.requests)
    return Counter("short" if length <= SHORT_TOKENS else "long" for length in lengths)


@pytest.mark.parametrize("engine", ["VLLM", "SGLang"])
async def test_short_rows_pass_long_ones_that_wait_and_every_row_is_asked(
    sized: Job, server: EngineServer, engine: str
) -> None:
    async with sized.use(server, engine=engine).generating() as task:
        await until(lambda: server.in_flight == LONG + BEYOND)
        assert asked(server) == {"long": LONG, "short": BEYOND}
        server.script = lambda _: Reply()
        server.let_go()
        code, progress = await task
    assert (code, progress.ok, server.most_in_flight) == (ExitCode.DONE, 20, LONG + BEYOND)
    assert len(unique(sized.lines())) == 20


async def test_both_caps_follow_the_config(sized: Job, server: EngineServer) -> None:
    del sized.generation["concurrencyShort"]
    async with sized.generating():
        await until(lambda: server.in_flight == LONG)
        sized.generation["concurrencyShort"] = LONG + 5
        sized.write()
        await until(lambda: server.in_flight == LONG + 5)
        assert asked(server) == {"long": LONG, "short": 5}
        sized.generation |= {"concurrency": LONG + 1, "concurrencyShort": LONG + 6}
        sized.write()
        await until(lambda: server.in_flight == LONG + 6)
        assert asked(server) == {"long": LONG + 1, "short": 5}


async def test_rows_that_were_set_aside_are_left_as_they_were_when_it_is_stopped(
    sized: Job, server: EngineServer
) -> None:
    port = free_port()
    async with sized.generating(port) as task:
        await until(lambda: server.in_flight == LONG + BEYOND)
        os.kill(os.getpid(), signal.SIGTERM)
        await progress_when(port, lambda seen: seen.state is WorkerState.DRAINING)
        server.script = lambda _: Reply()
        server.let_go()
        code, progress = await task
    assert (code, progress.ok, server.count) == (ExitCode.INTERRUPTED, LONG + BEYOND, LONG + BEYOND)
    _, progress = await sized.generate()
    assert (progress.ok, server.count) == (20, 20)
