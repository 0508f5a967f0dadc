"""No accepted answer is lost and none is written twice, however the worker ends."""

from __future__ import annotations

import asyncio
import json
import random
import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from draftmill_api.exitcode import ExitCode
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.shared import waiting
from tests.support.engine_server import EngineServer, Fail, Hold, Reply, answer_ids
from tests.support.forked import ForkedProgram
from tests.support.job import Job, prompts, unique, until
from tests.support.killing_worker import ForkedWorker, kill_until_done
from tests.support.server_program import slow_tailed_server
from tests.support.tiny_model import Thinking, TinyModel


@pytest.fixture(scope="module")
def slow_server(models: dict[Thinking, TinyModel]) -> Iterator[str]:
    with slow_tailed_server(models[Thinking.NONE]) as url:
        yield url


def test_killed_at_random_instants_nothing_is_lost_or_doubled(job: Job, slow_server: str) -> None:
    """Public failure 6 (SpecForge#458): going on at a number of lines lost slow rows, and doubled others."""
    job.datasets = {"A": prompts(400), "B": prompts(200)}
    job.endpoints = [{"name": "s0", "url": slow_server, "engine": "VLLM"}]
    assert kill_until_done(job, ForkedWorker("generate"), kills=5, rng=random.Random(7)) == 5
    for dataset, count in (("A", 400), ("B", 200)):
        lines = job.lines(dataset=dataset)
        assert len(unique(lines)) == count
        assert all(line["output_ids"] == answer_ids(job.model, line["prompt_ids"]) for line in lines)
    result = job.finish()
    assert (result.progress.ok, result.progress.total) == (600, 600)


async def test_sigterm_lets_answers_finish_and_asks_to_be_retried(job: Job, slow_server: str) -> None:
    job.datasets = {"A": prompts(300)}
    job.endpoints = [{"name": "s0", "url": slow_server, "engine": "VLLM"}]
    output = job.output / "A" / "raw_responses.jsonl"
    with ForkedProgram(
        job.folder, "generate", "--config", str(job.write()), "--grace-period", "10"
    ) as program:
        await until(lambda: output.exists() and output.stat().st_size > 20_000, within=60.0)
        code, said = await asyncio.to_thread(program.stop, signal.SIGTERM)
    assert code == ExitCode.INTERRUPTED, said
    assert "stopping: 16 answers in flight" in said
    done = len(unique(job.lines()))
    assert 16 < done < 300
    await job.generate()
    assert len(unique(job.lines())) == 300


TAILS = {
    "half a line": b'{"id": "7", "te',
    "half a line and an end": b'{"id": "7", "te\n\n',
    "half a character": '{"id": "7", "text": "é'.encode()[:-1],
    "a whole line without its end": b'{"id": "0123456789abcdef0123456789abcdef"}',
    "zeros": b"\0" * 100,
    "half a line, zeros and an end": b'{"id": "7", "te' + b"\0" * 4096 + b"\n",
    "blank lines": b"\n\n",
    "half a line of another kind": b'["id"]\n{"id"',
}


@pytest.mark.parametrize("tail", TAILS.values(), ids=TAILS.keys())
async def test_a_torn_tail_is_cut_off_and_done_again(job: Job, server: EngineServer, tail: bytes) -> None:
    """Public failure 7 (OpenEnv#1154): what came after a torn line was glued onto it."""
    await job.use(server).generate()
    path = job.output / "A" / "raw_responses.jsonl"
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]) + tail)
    server.by_prompt.clear()
    code, progress = await job.generate()
    assert (code, progress.done, server.count) == (ExitCode.DONE, 20, 1)
    assert len(unique(job.lines())) == 20
    assert path.read_bytes().startswith(b"".join(lines[:-1]))
    assert job.finish().progress.ok == 20


async def test_a_broken_line_before_good_ones_is_refused(job: Job, server: EngineServer) -> None:
    await job.use(server).generate()
    path = job.output / "A" / "raw_responses.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1][:50] + b"\n" + b"".join(lines[2:]))
    with pytest.raises(JobRefusedError, match=f"line at byte {len(lines[0])} is no record"):
        await job.generate()


async def test_a_finished_run_asks_nothing_and_ends_at_once(job: Job, server: EngineServer) -> None:
    """Public failure 11 (distilabel#1065): a run of which all was done already hung when it was started."""
    await job.use(server).generate()
    server.stop()
    code, progress = await job.generate()
    assert (code, progress.done) == (ExitCode.DONE, 20)


async def test_order_and_limit_may_change_between_attempts(job: Job, server: EngineServer) -> None:
    """Public failure 9 (speculators#716): rows were known by their number, which a limit or order changes."""
    job.use(server).datasets = {"A": prompts(30)}
    await job.generate()
    job.datasets = {"A": [*reversed(prompts(30)), *prompts(10, start=100)]}
    server.by_prompt.clear()
    _, progress = await job.generate()
    assert (progress.done, progress.total, server.count) == (40, 40, 10)
    job.dataset_fields = {"maxSamples": 25}
    _, progress = await job.generate()
    assert (progress.done, progress.total, server.count) == (25, 25, 10)
    assert len(unique(job.lines())) == 40, "answers beyond a smaller limit stay on disk"
    assert job.finish().progress.ok == 25


async def test_more_samples_keep_those_that_are_there(job: Job, server: EngineServer) -> None:
    await job.use(server).generate()
    job.sampling |= {"samplesPerPrompt": 2}
    _, progress = await job.generate()
    assert (progress.done, server.count) == (40, 40)
    assert job.finish().progress.ok == 40


async def test_dead_letters_are_left_alone_by_attempts_and_asked_again_by_a_new_run(
    job: Job, server: EngineServer
) -> None:
    job.run = {"name": "r", "uid": "one"}
    job.generation = {"retries": 0}
    server.script = lambda request: (
        Fail({0: 400, 1: 500}.get(request.number, 200)) if request.number < 2 else Reply()
    )
    _, progress = await job.use(server).generate()
    assert progress.errors == 2
    _, progress = await job.generate()
    assert (progress.errors, server.count) == (2, 20), "the same run leaves them alone"
    job.run = {"name": "r", "uid": "two"}
    _, progress = await job.generate()
    assert (progress.errors, progress.ok, server.count) == (1, 19, 21), "a new run asks what may pass"
    assert [letter["permanent"] for letter in job.lines("dead_letter")] == [True]
    assert job.finish().progress.errors == 1


async def test_answers_that_were_asked_in_another_way_are_not_mixed(job: Job, server: EngineServer) -> None:
    await job.use(server).generate()
    before = json.loads((job.output / "A" / "run.json").read_bytes())
    job.sampling |= {"temperature": "0.5", "topK": 7}
    job.generation = {"chatTemplateKwargs": {"thinking": False}}
    with pytest.raises(JobRefusedError, match=r"fingerprint [0-9a-f]{16} there, [0-9a-f]{16} now") as refused:
        await job.generate()
    assert refused.value.reason == "OutputFolderDiffers"
    assert "chatTemplateKwargs.thinking is not set there and false now; " in refused.value.message
    assert "sampling.temperature is 1.0 there and 0.5 now; " in refused.value.message
    assert "sampling.top_k is not set there and 7 now. " in refused.value.message
    assert json.loads((job.output / "A" / "run.json").read_bytes()) == before
    assert server.count == 20


async def test_prompts_whose_text_was_changed_are_not_mixed_with_answers_to_the_old_one(
    job: Job, server: EngineServer
) -> None:
    await job.use(server).generate()
    job.datasets = {"A": [*prompts(15), *prompts(5, start=100)]}
    with pytest.raises(JobRefusedError, match="5 prompts that were answered are gone") as refused:
        await job.generate()
    assert refused.value.reason == "OutputFolderDiffers"
    assert re.search(r"fingerprint [0-9a-f]{16} there, [0-9a-f]{16} now", refused.value.message)
    assert "5 are new, the first at place 15 (was their text changed?)" in refused.value.message
    assert (server.count, len(unique(job.lines()))) == (20, 20)
    job.datasets = {"A": prompts(20)}
    code, _ = await job.generate()
    assert (code, server.count) == (ExitCode.DONE, 20), "as before, it goes on as before"


SAME_PROMPTS: dict[str, list[dict[str, Any]]] = {
    "another order": [*reversed(prompts(20))],
    "rows removed": prompts(12),
    "rows added": [*prompts(5, start=100), *prompts(20)],
    "some of them twice": [*prompts(20), *prompts(20)],
    "numbers of their own, which are missing or there twice": [
        {**row, **({"id": number // 2} if number % 3 else {})} for number, row in enumerate(prompts(20))
    ],
}


@pytest.mark.parametrize("rows", SAME_PROMPTS.values(), ids=SAME_PROMPTS.keys())
async def test_other_rows_of_the_same_prompts_go_on(
    job: Job, server: EngineServer, rows: list[dict[str, Any]]
) -> None:
    """Public failure 9 (speculators#716): rows without a number, or two with one, were lost or doubled."""
    await job.use(server).generate()
    job.datasets = {"A": rows}
    code, progress = await job.generate()
    assert (code, progress.total, progress.errors) == (ExitCode.DONE, len(rows), 0)
    assert set(server.by_prompt.values()) == {1}, "no prompt was asked twice"
    assert job.finish().progress.total == len(rows)


async def test_answers_that_come_in_reverse_are_those_of_their_own_prompts(
    job: Job, server: EngineServer
) -> None:
    """Public failure 10 (distilabel#587, #989, #649): answers in another order are not shifted among rows."""
    server.script = lambda request: Reply(delay=0.02 * (16 - request.number % 16))
    job.use(server).datasets = {"A": prompts(48)}
    await job.generate()
    lines = job.lines()
    assert [line["sample_id"] for line in lines] != sorted(line["sample_id"] for line in lines)
    for line in lines:
        assert line["messages"][-1]["content"] == prompts(1, start=line["sample_id"])[0]["prompt"]
        assert line["output_ids"] == answer_ids(job.model, line["prompt_ids"])
    assert len(unique(lines)) == 48


async def test_a_limit_that_lets_other_rows_in_changes_no_prompt(job: Job, server: EngineServer) -> None:
    job.use(server).dataset_fields = {"maxSamples": 10}
    await job.generate()
    job.datasets = {"A": [*prompts(5, start=100), *prompts(20)]}
    code, progress = await job.generate()
    assert (code, progress.done, server.count) == (ExitCode.DONE, 10, 15)


async def test_a_process_that_holds_a_folder_is_named_to_a_second_one_and_killed_it_is_in_no_ones_way(
    job: Job, server: EngineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "_OTHER_RUN", 0.5)
    server.script = lambda request: Reply() if request.number < 10 else Hold()
    job.run = {"name": "first", "namespace": "team", "uid": "1"}
    arguments = ("generate", "--config", str(job.use(server).write()))
    with ForkedProgram(job.folder, *arguments) as first:
        await until(lambda: len(job.lines()) == 10, within=60.0)
        job.run = {"name": "second", "namespace": "team", "uid": "2"}
        named = rf"is being written by run team/first \(uid 1\) on \S+, process {first.pid};"
        with pytest.raises(JobRefusedError, match=named) as refused:
            await job.generate()
        assert refused.value.reason == "FolderInUse"
        await asyncio.to_thread(first.stop, signal.SIGKILL)
    monkeypatch.setattr(waiting, "_OTHER_RUN", 0.0)
    server.script = lambda _: Reply()
    code, progress = await job.generate()
    assert (code, progress.ok, len(unique(job.lines()))) == (ExitCode.DONE, 20, 20)


async def test_an_earlier_attempt_of_the_same_run_is_waited_for(job: Job, server: EngineServer) -> None:
    server.script = lambda _: Reply(delay=0.1)
    job.run = {"name": "first", "uid": "1"}
    job.datasets = {"A": prompts(100)}
    async with job.use(server).generating() as first:
        await until(lambda: server.count > 0)
        second = asyncio.create_task(job.generate())
        await first
        code, progress = await second
    assert (code, progress.done, server.count) == (ExitCode.DONE, 100, 100)


async def test_two_workers_share_the_rows_and_one_can_go_on_alone(
    job: Job, server: EngineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.use(server).datasets = {"A": [*prompts(60), *prompts(5)]}
    totals = []
    for worker in ("0/2", "1/2"):
        monkeypatch.setenv("DRAFTMILL_WORKER", worker)
        _, progress = await job.generate()
        totals.append(progress.total)
    assert sum(totals) == 65
    assert min(totals) > 10
    assert len(unique(job.lines())) == 60
    assert {path.name for path in (job.output / "A").glob("*.jsonl")} == {
        "raw_responses-0.jsonl",
        "raw_responses-1.jsonl",
    }
    part = job.output / "A" / "raw_responses-1.jsonl"
    part.write_bytes(part.read_bytes()[:-30])  # worker 1 died, and nobody takes its place
    monkeypatch.delenv("DRAFTMILL_WORKER")
    _, progress = await job.generate()
    assert (progress.done, progress.skipped, server.count) == (60, 5, 61)
    assert job.finish().progress.ok == 60
