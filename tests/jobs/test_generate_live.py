"""What may change while the worker runs, and what it shows meanwhile."""

from __future__ import annotations

import errno
import random
import re
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from draftmill_api.exitcode import ExitCode
from draftmill_api.progress import WorkerState
from draftmill_api.record import prompt_key, row_id
from draftmill_jobs.engines.connections import Connections
from draftmill_jobs.engines.http1 import Reply as HttpReply
from draftmill_jobs.errors import JobFailedError, JobRefusedError
from draftmill_jobs.generate import retry
from draftmill_jobs.prompts.rows import owns
from draftmill_jobs.prompts.shapes import read_prompt
from draftmill_jobs.shared import left_out
from draftmill_jobs.shared.settings import Share
from tests.support.engine_server import EngineServer, Fail, Hold, Reply, Stall
from tests.support.job import Job, prompts, unique, until
from tests.support.job_pages import get, in_force, progress_when
from tests.support.ports import free_port
from tests.support.tiny_model import END, FIRST_NUMBER


def identity(row: dict[str, Any]) -> str:
    prompt = read_prompt(row)
    return row_id(prompt_key(prompt.messages, prompt.tools, {}), 0)


@pytest.mark.parametrize("concurrency", [200, 1500])
async def test_the_cap_is_reached_and_never_passed(job: Job, server: EngineServer, concurrency: int) -> None:
    """Public failure 14 (BerriAI/litellm#6592): the client caps the number in flight in silence."""
    server.script = lambda request: Hold(concurrency) if request.number < concurrency else Reply(delay=0.01)
    job.datasets = {"A": prompts(concurrency), "B": prompts(100)}
    job.generation = {"concurrency": concurrency}
    _, progress = await job.use(server).generate()
    assert server.most_in_flight == concurrency
    assert progress.ok == concurrency + 100


async def test_all_datasets_and_servers_share_one_cap(job: Job, server: EngineServer) -> None:
    """Public failure 15 (NVIDIA-NeMo/Skills#899): together they pass it, and the server freezes."""
    async with EngineServer(job.model) as other:
        server.script = other.script = lambda _: Reply(delay=0.01 if server.in_flight % 3 else 0.03)
        job.datasets = {name: prompts(100) for name in "ABC"}
        job.generation = {"concurrency": 10}
        most = 0

        def seen() -> bool:
            nonlocal most
            most = max(most, server.in_flight + other.in_flight)
            return False

        async with job.use(server, other).generating() as task:
            await until(lambda: seen() or task.done())
            _, progress = await task
    assert progress.ok == 300
    assert most == 10


async def test_concurrency_follows_the_config_within_seconds(job: Job, server: EngineServer) -> None:
    server.script = lambda _: Reply(delay=0.05)
    job.datasets, job.generation = {"A": prompts(600)}, {"concurrency": 2}
    async with job.use(server).generating() as task:
        await until(lambda: server.count > 4)
        job.generation = {"concurrency": 40}
        job.write()
        await until(lambda: server.in_flight == 40, within=5.0)
        assert server.most_in_flight == 40
        _, progress = await task
    assert progress.ok == 600


async def test_raised_retries_are_those_of_rows_in_flight(
    job: Job, server: EngineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "_BASE", 0.02)
    server.script = lambda _: Hold()
    job.datasets, job.generation = {"A": prompts(4)}, {"retries": 0}
    port = free_port()
    async with job.use(server).generating(port) as task:
        await until(lambda: len(server.held) == 4)
        job.generation = {"retries": 1}
        await in_force(job, port)
        server.script = lambda _: Reply()
        server.let_go(Fail(500))
        _, progress = await task
    assert (progress.ok, progress.retried, progress.errors) == (4, 4, 0)


async def test_a_lowered_stall_timeout_gives_up_requests_in_flight(job: Job, server: EngineServer) -> None:
    server.script = lambda request: Reply() if request.tries else Stall()
    job.datasets, job.generation = {"A": prompts(4)}, {"stallTimeout": "60s"}
    async with job.use(server).generating() as task:
        await until(lambda: server.count == server.in_flight == 4)
        job.generation = {"stallTimeout": "300ms"}
        job.write()
        await until(lambda: server.disconnects == 4)
        _, progress = await task
    assert (progress.ok, progress.retried, progress.errors) == (4, 4, 0)


async def test_a_request_has_the_connect_timeout_in_force(
    job: Job, server: EngineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[float] = []
    post = Connections.post

    async def noting(
        connections: Connections, *request: Any, connect_timeout: float, **rest: Any
    ) -> HttpReply:
        limits.append(connect_timeout)
        return await post(connections, *request, connect_timeout=connect_timeout, **rest)

    monkeypatch.setattr(Connections, "post", noting)
    server.script = lambda request: Hold() if request.number < 2 else Reply()
    job.datasets, job.generation = {"A": prompts(8)}, {"concurrency": 2, "connectTimeout": "3s"}
    port = free_port()
    async with job.use(server).generating(port) as task:
        await until(lambda: len(server.held) == 2)
        before = len(limits)
        job.generation["connectTimeout"] = "7s"
        await in_force(job, port)
        server.let_go()
        await task
    assert set(limits[:before]) == {3.0}
    assert set(limits[before:]) == {7.0}


async def test_a_config_that_is_half_written_leaves_the_old_one_in_force(
    job: Job, server: EngineServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.script = lambda _: Reply(delay=0.05)
    job.datasets, job.generation = {"A": prompts(100)}, {"concurrency": 2}
    async with job.use(server).generating() as task:
        await until(lambda: server.count > 4)
        job.path.write_text("{generation: {concurrency: 0")
        await until(lambda: "the config in force stays" in caplog.text, within=5.0)
        code, progress = await task
    assert (code, progress.ok) == (ExitCode.DONE, 100)


async def test_rows_go_to_the_server_with_least_to_do(job: Job, server: EngineServer) -> None:
    server.script = lambda _: Reply(delay=0.2)
    async with EngineServer(job.model, lambda _: Reply(delay=0.02)) as fast:
        job.datasets, job.generation = {"A": prompts(200)}, {"concurrency": 8}
        await job.use(server, fast).generate()
        assert fast.count > 2 * server.count
    assert {line["server"] for line in job.lines()} == {"s0", "s1"}


async def test_endpoints_come_and_go_with_the_config(job: Job, server: EngineServer) -> None:
    server.script = lambda _: Reply(delay=0.05)
    async with EngineServer(job.model, lambda _: Reply(delay=0.05)) as other:
        job.datasets, job.generation = {"A": prompts(600)}, {"retries": 0}
        async with job.use(server).generating() as task:
            await until(lambda: server.count > 20)
            job.use(other).endpoints[0]["name"] = "s1"
            job.write()
            await until(lambda: other.count > 0)
            server.stop()
            code, progress = await task
    assert (code, progress.ok, progress.errors) == (ExitCode.DONE, 600, 0)
    unique(job.lines())


async def test_an_endpoint_that_is_not_up_yet_is_waited_for(job: Job, server: EngineServer) -> None:
    server.health = 503
    port = free_port()
    job.write()
    async with job.use(server).generating(port) as task:
        progress = await progress_when(port, lambda seen: "503" in seen.message)
        assert progress.state is WorkerState.WAITING
        assert "s0: /health answers 503" in progress.message
        server.health = 200
        code, _ = await task
    assert code is ExitCode.DONE


async def test_progress_metrics_and_health_are_served(job: Job, server: EngineServer) -> None:
    server.script = lambda request: Reply(delay=0.1) if request.number else Fail(400)
    job.datasets, job.run = {"A": prompts(100), "B": prompts(50)}, {"name": "r", "uid": "u1"}
    job.generation = {"concurrency": 4}
    port = free_port()
    async with job.use(server).generating(port) as task:
        seen = await progress_when(port, lambda seen: seen.progress.requests_per_second != "")
        assert seen.state is WorkerState.RUNNING
        assert (seen.run_uid, seen.worker, seen.attempt) == ("u1", "0/1", 1)
        assert seen.progress.total == 150
        assert 0 < seen.progress.in_flight <= 4
        assert float(seen.progress.requests_per_second) > 0
        assert seen.progress.average_completion_tokens == 16
        assert re.fullmatch(r"(\d+h)?(\d+m)?(\d+s)?", seen.progress.eta)
        assert [dataset.name for dataset in seen.datasets] == ["A", "B"]
        assert [(failure.reason, failure.count) for failure in seen.failures] == [("bad_request", 1)]
        metrics = await get(port, "/metrics")
        assert 'draftmill_rows{dataset="A",state="errors"} 1.0' in metrics
        assert await get(port, "/healthz") == "ok\n"
        task.cancel()


async def test_the_progress_line_has_its_form(
    job: Job, server: EngineServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    job.datasets = {"A": prompts(250)}
    await job.use(server).generate()
    lines = [record.getMessage() for record in caplog.records if record.name == "draftmill.progress"]
    form = (
        r"Progress: (\d+)/250 \(0 errors\), \d+\.\d req/s, \d+ tok/s, avg completion: 16 tokens, "
        r"elapsed: \d+s, ETA: (\d+s|unknown)"
    )
    found = [re.fullmatch(form, line) for line in lines]
    assert {match[1] for match in found if match} >= {"100", "200", "250"}


async def test_a_token_cap_is_met_and_not_passed_by_much(job: Job, server: EngineServer) -> None:
    server.script = lambda _: Reply(delay=0.02)
    job.datasets = {"A": prompts(300), "B": prompts(20)}
    job.dataset_fields = {"maxTokens": 1600}
    code, progress = await job.use(server).generate()
    assert code is ExitCode.DONE
    tokens = sum(line["completion_tokens"] for line in job.lines())
    assert 1600 <= tokens <= 1600 + 64
    assert progress.not_admitted == 300 - tokens // 16
    result = job.finish()
    assert result.cap_reached
    assert result.progress.not_admitted == progress.not_admitted
    again, _ = await job.generate()
    assert again is ExitCode.DONE
    assert sum(line["completion_tokens"] for line in job.lines()) == tokens, "the cap survives resuming"


async def test_a_token_cap_is_met_within_one_windows_worth_whatever_the_answers_lengths(
    job: Job, server: EngineServer
) -> None:
    rng = random.Random(0)
    lengths = [min(400, round(rng.lognormvariate(3.0, 1.0)) + 1) for _ in range(900)]
    server.script = lambda request: Reply(
        ids=[*[FIRST_NUMBER] * lengths[request.number], END], delay=lengths[request.number] / 4000
    )
    job.datasets, job.dataset_fields = {"A": prompts(900)}, {"maxTokens": 8000}
    job.sampling = {"maxCompletionTokens": 512}
    code, progress = await job.use(server).generate()
    window = 16 * fmean(lengths)
    assert 8000 <= progress.completion_tokens <= 8000 + window
    assert (code, job.finish().cap_reached) == (ExitCode.DONE, True)


async def test_a_token_cap_is_shared_by_the_workers_though_one_runs_out_of_rows(
    job: Job, server: EngineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = prompts(200)
    mine = [row for row in rows if owns(Share(0, 2), identity(row))]
    others = [row for row in rows if row not in mine]
    job.use(server).datasets = {"A": [*mine[:60], *others[:5]]}
    job.dataset_fields = {"maxTokens": 640}  # 320 for each: 20 answers, and the second worker has 5 rows
    not_admitted = 0
    for worker in ("0/2", "1/2"):
        monkeypatch.setenv("DRAFTMILL_WORKER", worker)
        code, progress = await job.generate()
        assert code is ExitCode.DONE
        not_admitted += progress.not_admitted
    tokens = sum(line["completion_tokens"] for line in job.lines())
    assert tokens < 640
    result = job.finish()
    assert result.cap_reached
    assert result.progress.not_admitted == not_admitted == 65 - tokens // 16
    part = job.output / "A" / "raw_responses-1.jsonl"
    part.write_bytes(b"".join(part.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(JobRefusedError, match=r"neither a record nor a dead letter \([0-9]+ were left out"):
        job.finish()
    monkeypatch.delenv("DRAFTMILL_WORKER")
    job.dataset_fields = {}
    await job.generate()
    assert (job.finish().progress.ok, job.finish().cap_reached) == (65, False), "without a cap nothing is out"


async def test_a_disk_that_does_not_take_what_was_left_out_ends_the_attempt(
    job: Job, server: EngineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(path: Path, content: bytes) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(left_out, "write_atomically", write)
    job.use(server).dataset_fields = {"maxTokens": 32}
    with pytest.raises(JobFailedError, match="Input/output error") as failed:
        await job.generate()
    assert failed.value.reason == "StorageFailed"
    monkeypatch.undo()
    await job.generate()
    assert job.finish().cap_reached


async def test_a_token_cap_counts_no_answers_of_rows_that_the_source_no_longer_has(
    job: Job, server: EngineServer
) -> None:
    job.use(server).datasets = {"A": [*prompts(40), *prompts(100, start=100)]}
    job.dataset_fields = {"maxTokens": 640}
    await job.generate()
    job.datasets = {"A": [*prompts(5), *prompts(100, start=100)]}
    job.dataset_fields = {"maxTokens": 320}
    code, progress = await job.generate()
    assert code is ExitCode.DONE
    assert 320 <= progress.completion_tokens <= 320 + 64
    assert progress.done == progress.completion_tokens // 16
    assert progress.done + progress.not_admitted == progress.total == 105
    result = job.finish()
    assert (result.progress.done, result.progress.not_admitted) == (progress.done, progress.not_admitted)


async def test_rows_that_are_equal_or_unusable_are_accounted_for(job: Job, server: EngineServer) -> None:
    job.datasets = {
        "A": [*prompts(10), *prompts(4), {"nothing": 1}, {"nothing": 1}, "{broken", {"prompt": " "}]
    }
    _, progress = await job.use(server).generate()
    assert (progress.total, progress.ok, progress.skipped, progress.errors) == (18, 10, 5, 3)
    assert server.count == 10
    letters = job.lines("dead_letter")
    assert {letter["reason"] for letter in letters} == {"unusable_row"}
    assert all(letter["permanent"] and letter["prompt_key"] is None for letter in letters)
    result = job.finish()
    assert (result.progress.skipped, result.progress.errors) == (5, 3)
