"""Every turn of a conversation is a row: asked in its order, through failures, caps and restarts."""

from __future__ import annotations

from typing import Any

import pytest

from draftmill_api.exitcode import ExitCode
from draftmill_api.record import conversation_key
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.generate import retry
from draftmill_jobs.plan.planning import plan
from tests.support.engine_server import EngineServer, Fail, Hold, Reaction, Reply, Request
from tests.support.job import Job, until
from tests.support.talks import check_histories, talk, talks, turns_of
from tests.support.tiny_model import CLOSE, END, FIRST_NUMBER, Thinking, TinyModel


@pytest.fixture(autouse=True)
def short_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_BASE", 0.02)
    monkeypatch.setattr(retry, "_CAP", 0.1)


@pytest.fixture
def job(job: Job, server: EngineServer) -> Job:
    job.use(server).dataset_fields = {"turns": "EveryTurn"}
    return job


def source_turns(job: Job) -> int:
    return sum(len(row["messages"]) // 2 for row in job.datasets["A"])


@pytest.mark.parametrize("engine", ["VLLM", "SGLang"])
@pytest.mark.parametrize("concurrency", [1, 16])
async def test_each_turn_has_the_models_own_answers_before_it(
    job: Job, server: EngineServer, *, engine: str, concurrency: int
) -> None:
    job.use(server, engine=engine).datasets = {"A": talks(24)}
    job.generation = {"concurrency": concurrency}
    code, progress = await job.generate()
    distinct = len(turns_of(job.datasets["A"]))
    assert code is ExitCode.DONE
    assert progress.total == source_turns(job) == 60 + 4
    assert (progress.done, progress.skipped, progress.errors) == (distinct, progress.total - distinct, 0)
    check_histories(job)
    finished = job.finish().progress
    assert (finished.done, finished.skipped, finished.total) == (distinct, progress.skipped, progress.total)
    (planned,) = plan(job.config).dataset_totals
    assert planned == progress.total


async def test_each_sample_is_a_conversation_of_its_own(job: Job) -> None:
    job.datasets, job.sampling = {"A": talks(10)}, {"samplesPerPrompt": 3, "maxCompletionTokens": 64}
    _, progress = await job.generate()
    assert progress.total == 3 * source_turns(job)
    check_histories(job, samples=3)
    job.finish()


async def test_turns_and_samples_of_a_conversation_are_known_as_one(job: Job) -> None:
    """So that none of them is trained on while another is held out."""
    job.datasets, job.sampling = {"A": talks(10)}, {"samplesPerPrompt": 2, "maxCompletionTokens": 64}
    await job.generate()

    before, lines = turns_of(job.datasets["A"]), job.lines()
    assert {line["turn"] for line in lines} == {0, 1, 2, 3}
    for line in lines:
        first = line["prompt_key"]
        while before[first] is not None:
            first = before[first]
        found = conversation_key(line["id"], line["messages"], line["tools"], line["chat_template_kwargs"])
        assert found == first


async def test_reasoning_is_left_to_the_chat_template(job: Job, models: dict[Thinking, TinyModel]) -> None:
    """Reported failure 20 (fw-ai/cookbook#386): stripped from history, thoughts were trained as empty."""
    said = [FIRST_NUMBER, CLOSE, FIRST_NUMBER + 1, END]
    job.model, job.datasets = models[Thinking.OPEN_IN_PROMPT], {"A": [talk("w1", "w2")]}
    async with EngineServer(job.model, lambda _: Reply(ids=said)) as server:
        await job.use(server).generate()
    first, second = sorted(job.lines(), key=lambda line: line["turn"])
    assert first["output_ids"] == said
    assert second["messages"] == [
        {"role": "user", "content": "w1"},
        {"role": "assistant", "content": "w1", "reasoning_content": "w0"},
        {"role": "user", "content": "w2"},
    ]


async def test_turns_after_one_that_failed_are_dead_letters_that_name_it(
    job: Job, server: EngineServer
) -> None:
    server.script = lambda request: Fail(400) if len(request.payload["messages"]) == 3 else Reply()
    job.datasets = {"A": [talk("w1", "w2", "w3", "w4")]}
    code, progress = await job.generate()
    assert (code, progress.ok, progress.errors, server.count) == (ExitCode.DONE, 1, 3, 2)
    failed, *after = job.lines("dead_letter")
    assert (failed["reason"], [letter["reason"] for letter in after]) == (
        "bad_request",
        ["previous_turn"] * 2,
    )
    assert all(failed["id"] in letter["message"] and letter["permanent"] for letter in after)
    assert [letter["id"][-3:] for letter in after] == ["-t2", "-t3"]
    assert job.finish().progress.errors == 3


async def test_an_answer_cut_inside_its_reasoning_ends_the_conversation(
    job: Job, models: dict[Thinking, TinyModel]
) -> None:
    job.model, job.datasets = models[Thinking.OPEN_IN_PROMPT], {"A": [talk("w1", "w2")]}
    job.sampling = {"maxCompletionTokens": 3}
    async with EngineServer(job.model) as server:
        _, progress = await job.use(server).generate()
    assert (progress.truncated, progress.errors) == (1, 1)
    (letter,) = job.lines("dead_letter")
    assert letter["message"].endswith("left no answer to go on from: truncated_reasoning")
    job.finish()


async def test_a_new_run_asks_a_turn_that_failed_in_passing_and_those_after_it(
    job: Job, server: EngineServer
) -> None:
    server.script = lambda request: Fail(500) if len(request.payload["messages"]) == 3 else Reply()
    job.datasets, job.generation = {"A": talks(9)}, {"retries": 0, "errorPolicy": {"pausePercent": 100}}
    _, first = await job.generate()
    assert first.errors == len(turns_of(job.datasets["A"])) - first.done > 5
    assert not any(letter["permanent"] for letter in job.lines("dead_letter"))
    server.script = lambda _: Reply()
    _, second = await job.generate()
    assert (second.errors, second.done + second.skipped) == (0, second.total)
    check_histories(job)


async def test_a_stop_in_the_middle_of_conversations_goes_on_with_them(
    job: Job, server: EngineServer
) -> None:
    """Turns whose earlier one is on disk, in flight, or was never asked: all are asked in the end."""
    job.datasets = {"A": talks(40)}
    for stop_after in (7, 23, 40, 61, 80):
        server.script = lambda _: Reply(delay=0.02)
        running = job.generating()
        async with running as task:
            await until(lambda: server.count >= stop_after or task.done())  # noqa: B023 - awaited here
    code, progress = await job.generate()
    assert (code, progress.done + progress.skipped) == (ExitCode.DONE, progress.total)
    check_histories(job)
    job.finish()


async def test_a_stop_between_a_dead_turn_and_its_followers_ends_with_them_dead(
    job: Job, server: EngineServer
) -> None:
    job.datasets = {"A": [talk("w1", "w2", "w3")]}
    server.script = lambda request: Fail(400) if request.number == 1 else Reply()
    await job.generate()
    letters = job.output / "A" / "dead_letter.jsonl"
    letters.write_text(letters.read_text().splitlines(keepends=True)[0])  # as a kill would leave it
    server.script = lambda _: Reply()
    _, progress = await job.generate()
    assert (progress.done, progress.errors) == (1, 2)
    assert [letter["reason"] for letter in job.lines("dead_letter")] == ["bad_request", "previous_turn"]


async def test_a_token_budget_leaves_out_the_turns_that_follow(job: Job) -> None:
    job.datasets = {"A": talks(30)}
    job.dataset_fields |= {"maxTokens": 300}
    code, progress = await job.generate()
    assert code is ExitCode.DONE
    assert progress.not_admitted > 0
    assert progress.done + progress.skipped + progress.not_admitted == progress.total
    assert 300 <= progress.completion_tokens < 300 + 16 * 16
    finished = job.finish()
    assert (finished.cap_reached, finished.progress.not_admitted) == (True, progress.not_admitted)
    _, again = await job.generate()
    assert (again.done, again.not_admitted) == (progress.done, progress.not_admitted)


async def test_rows_without_a_prompt_count_as_one_turn_each(job: Job) -> None:
    rows: list[Any] = [*talks(3), {"nothing": 1}, '{"broken', None]
    job.datasets = {"A": rows}
    _, progress = await job.generate()
    assert (progress.done, progress.errors, progress.total) == (6, 3, 9)
    assert all(letter["id"].endswith("-t0") for letter in job.lines("dead_letter"))
    job.finish()


async def test_a_folder_of_last_turns_is_not_mixed_with_every_turn(job: Job) -> None:
    job.datasets = {"A": talks(3)}
    await job.generate()
    job.dataset_fields = {}
    with pytest.raises(JobRefusedError, match='turns is "EveryTurn" there and "LastTurn" now'):
        await job.generate()


async def test_short_prompts_pass_long_ones_of_conversations_too(job: Job, server: EngineServer) -> None:
    def script(_: Request) -> Reaction:
        return Reply(delay=0.005)

    server.script = script
    job.datasets = {"A": talks(40)}
    job.generation = {"concurrency": 2, "concurrencyShort": 6, "shortPromptTokens": 12}
    await job.generate()
    check_histories(job)


async def test_a_thousand_conversations_that_begin_alike_are_read_no_faster_than_they_are_asked(
    job: Job, server: EngineServer
) -> None:
    """Those that wait for the one answer to their beginning take room of what is read ahead."""
    server.script = lambda request: Hold() if request.number == 0 else Reply()
    job.datasets = {"A": [talk("w1", f"w2 w{number}") for number in range(1000)]}
    async with job.generating() as task:
        await until(lambda: len(server.held) == 1)
        server.let_go()
        _, progress = await task
    assert (progress.done, progress.skipped) == (1001, 999)
    check_histories(job)
