"""Several workers on one folder: each row is one worker's, and together they are the run."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill_api.exitcode import ExitCode
from draftmill_api.v1alpha1.status import Counts
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.plan.planning import plan
from draftmill_jobs.shared.settings import Share
from draftmill_jobs.shared.tally import sum_counts
from tests.support.engine_server import EngineServer, Fail, Reply
from tests.support.job import Ended, Job, prompts, unique, until
from tests.support.workers import Workers

ALWAYS_ON = {"warnPercent": 100, "pausePercent": 100}


@pytest.fixture
def workers(job: Job, server: EngineServer, monkeypatch: pytest.MonkeyPatch) -> Workers:
    job.use(server).run = {"name": "r", "uid": "u"}
    job.generation = {"retries": 0, "errorPolicy": ALWAYS_ON}
    return Workers(job, monkeypatch)


def parts(job: Job) -> set[str]:
    return {path.name for path in (job.output / "A").glob("*.jsonl")}


def sums(ended: list[Ended]) -> Counts:
    return Counts(**sum_counts(progress for _, progress in ended))


@given(st.integers(1, 4096), st.integers(1, 64))
def test_the_workers_together_have_the_runs_requests_in_flight(concurrency: int, count: int) -> None:
    each = [Share(index, count).of_concurrency(concurrency) for index in range(count)]
    assert sum(each) == max(concurrency, count)
    assert max(each) - min(each) <= 1
    assert each == sorted(each, reverse=True)


async def test_a_worker_keeps_to_its_share_of_the_concurrency_also_when_that_changes(
    job: Job, server: EngineServer, workers: Workers
) -> None:
    server.script = lambda _: Reply(delay=0.05)
    job.datasets, job.generation = {"A": prompts(600)}, {"concurrency": 5}
    second = await workers.start(1, 2)
    await until(lambda: server.count > 20)
    assert server.most_in_flight == 2
    job.generation = {"concurrency": 41}
    job.write()
    await until(lambda: server.in_flight == 20, within=5.0)
    code, _ = await second
    assert (code, server.most_in_flight) == (ExitCode.DONE, 20)


async def test_any_change_of_workers_goes_on_and_settles_each_row_once(
    job: Job, server: EngineServer, workers: Workers
) -> None:
    job.sampling |= {"samplesPerPrompt": 2}
    server.script = lambda request: Fail(500) if request.number % 9 == 4 else Reply(delay=0.01)
    for count, rows in ((3, 60), (1, 90), (2, 120)):
        job.datasets = {
            "A": [*prompts(rows), *prompts(7), {"nothing": 1}],
            "B": prompts(rows // 3, start=500),
        }
        planned = plan(job.config)
        ended = await workers.all(count)
        assert {code for code, _ in ended} == {ExitCode.DONE}
        whole = sums(ended)
        letters = [line for name in "AB" for line in job.lines("dead_letter", name)]
        records = [line for name in "AB" for line in job.lines(dataset=name)]
        for name in "AB":
            unique([*job.lines(dataset=name), *job.lines("dead_letter", name)])
        assert whole.total == sum(planned.dataset_totals)
        assert whole.skipped == sum(planned.dataset_duplicates)
        assert (whole.done, whole.errors) == (len(records), len(letters))
        assert len(letters) > 10
        assert set(server.by_prompt.values()) == {2}, "each sample of a prompt was asked once"
        finished = job.finish().progress
        assert whole == Counts(**sum_counts([finished]))
        if count > 1:
            assert min(progress.total for _, progress in ended) > 0.5 * whole.total / count
    assert {name for name in parts(job) if name.startswith("raw")} == {
        "raw_responses.jsonl",
        "raw_responses-0.jsonl",
        "raw_responses-1.jsonl",
        "raw_responses-2.jsonl",
    }


async def test_a_restart_word_asks_the_failed_rows_of_all_parts_again_once(
    job: Job, server: EngineServer, workers: Workers
) -> None:
    server.script = lambda request: Fail(400 if request.number % 3 == 0 else 500)
    job.datasets = {"A": prompts(60)}
    await workers.all(3)
    assert (server.count, len(job.lines("dead_letter"))) == (60, 60)
    permanent = {letter["id"] for letter in job.lines("dead_letter") if letter["permanent"]}
    server.script = lambda _: Reply()
    await workers.all(2)
    assert server.count == 60, "another number of workers is no reason to ask again"
    job.run["restart"] = "2026-01-01"
    ended = await workers.all(2)
    assert server.count == 60 + 60 - len(permanent)
    assert {letter["id"] for letter in job.lines("dead_letter")} == permanent
    assert (sums(ended).ok, sums(ended).errors) == (60 - len(permanent), len(permanent))
    assert job.finish().progress.errors == len(permanent)
    await workers.all(2)
    assert server.count == 120 - len(permanent), "the word has been served"


async def test_a_folder_of_before_there_was_a_restart_word_is_read(
    job: Job, server: EngineServer, workers: Workers
) -> None:
    server.script = lambda _: Fail(500)
    await workers.all(1)
    path = job.output / "A" / "run.json"
    content = path.read_text()
    assert '"restart"' in content
    path.write_text(content.replace(',\n    "restart": ""', ""))
    assert '"restart"' not in path.read_text()
    await workers.all(1)
    assert server.count == 20
    job.run["restart"] = "again"
    await workers.all(1)
    assert server.count == 40


async def test_a_token_cap_is_shared_by_three_workers_at_once(
    job: Job, server: EngineServer, workers: Workers
) -> None:
    server.script = lambda _: Reply(delay=0.01)
    job.datasets, job.dataset_fields = {"A": prompts(300)}, {"maxTokens": 1200}
    job.sampling, job.generation = {"maxCompletionTokens": 16}, {"concurrency": 6}
    whole = sums(await workers.all(3))
    assert 1200 <= whole.completion_tokens <= 1200 + 3 * 16
    assert whole.done + whole.not_admitted == whole.total == 300
    result = job.finish()
    assert result.cap_reached
    assert result.progress.not_admitted == whole.not_admitted


@pytest.mark.parametrize(("before", "after"), [((0, 2), (0, 1)), ((0, 1), (1, 3))])
@pytest.mark.parametrize("has_records", [True, False])
async def test_a_worker_with_another_split_of_the_rows_is_waited_for(
    job: Job,
    server: EngineServer,
    workers: Workers,
    *,
    before: tuple[int, int],
    after: tuple[int, int],
    has_records: bool,
) -> None:
    server.script = lambda request: Reply(delay=0.05 if has_records and request.number < 16 else 1.0)
    job.datasets, job.generation = {"A": prompts(60)}, {"concurrency": 60}
    first = await workers.start(*before)
    if has_records:
        job.generation = {"concurrency": 16}
    await until(lambda: server.in_flight > 0 and (not has_records or bool(job.lines())))
    second = await workers.start(*after)
    await first
    code, _ = await second
    assert code is ExitCode.DONE
    unique(job.lines())
    assert set(server.by_prompt.values()) == {1}


async def test_workers_of_one_split_do_not_wait_for_each_other(
    job: Job, server: EngineServer, workers: Workers
) -> None:
    server.script = lambda _: Reply(delay=0.05)
    job.datasets = {"A": prompts(400)}
    first = await workers.start(0, 2)
    await until(lambda: server.count > 30)
    second = await workers.start(1, 2)
    await until(lambda: Path(job.output / "A" / "raw_responses-1.jsonl").exists())
    assert not first.done()
    await asyncio.gather(first, second)
    assert len(unique(job.lines())) == 400


async def test_without_a_uid_workers_that_start_together_ask_failed_rows_again_once(
    job: Job, server: EngineServer, workers: Workers
) -> None:
    job.run, job.datasets = {}, {"A": prompts(60)}
    server.script = lambda _: Fail(500)
    await workers.all(3)
    assert server.count == 60
    server.script = lambda _: Reply(delay=0.3)
    ended = await workers.all(2)
    assert (sums(ended).ok, server.count) == (60, 120), (
        "started anew, everything that may pass is asked again"
    )
    assert job.finish().progress.ok == 60


async def test_a_worker_that_asks_in_another_way_is_refused_while_one_is_at_work_without_an_answer_yet(
    job: Job, server: EngineServer, workers: Workers
) -> None:
    """As when a key of `chatTemplateKwargs` is exchanged while a run is active, and one worker restarts."""
    job.datasets = {"A": prompts(8)}
    server.script = lambda request: Reply(delay=0.0 if request.is_preflight else 2.0)
    job.generation |= {"chatTemplateKwargs": {"thinking": True}}
    first = await workers.start(0, 2)
    await until(lambda: server.count)
    job.generation |= {"chatTemplateKwargs": {"enable_thinking": True}}
    with pytest.raises(JobRefusedError, match="holds other answers than are asked for") as refused:
        await (await workers.start(1, 2))
    assert (refused.value.reason, job.lines()) == ("OutputFolderDiffers", [])
    assert (await first)[0] is ExitCode.DONE
    bound = json.loads((job.output / "A" / "run.json").read_bytes())
    assert bound["chatTemplateKwargs"] == {"thinking": True}
