"""Long rows begin early, whichever dataset they are in, so that the run's last answers are short ones."""

from __future__ import annotations

import random

import pytest

from draftmill_jobs.generate import writer
from draftmill_jobs.generate.order import SCOUTS, LookAhead, Standing, urgency
from tests.support.engine_server import EngineServer, Hold, Reply, Request
from tests.support.job import Job, prompts, until
from tests.support.tiny_model import END, FIRST_NUMBER

SHORT, LONG = 4, 24  # tokens of an answer


def test_a_dataset_of_which_little_is_known_goes_before_one_with_long_answers() -> None:
    unknown, long = Standing(SCOUTS - 1, 10.0), Standing(SCOUTS, 8192.0)
    assert urgency(unknown) > urgency(long) > urgency(Standing(10_000, 8191.0))


def test_the_longest_row_read_ahead_goes_first_and_of_equals_the_one_that_came_first() -> None:
    rows = LookAhead[str]()
    for row, size in [("a", 2), ("b", 9), ("c", 9), ("d", 5)]:
        rows.put(row, size)
    assert (len(rows), rows.size) == (4, 25)
    assert [rows.take(longest=True) for _ in range(4)] == ["b", "c", "d", "a"]


def test_a_row_that_is_less_than_twice_as_long_does_not_pass_one_before_it() -> None:
    rows = LookAhead[str]()
    for row, size in [("a", 20), ("b", 39), ("c", 21), ("d", 40), ("e", 30)]:
        rows.put(row, size)
    assert [rows.take(longest=True) for _ in range(5)] == ["d", "a", "b", "c", "e"]


def test_an_empty_look_ahead_gives_nothing() -> None:
    rows = LookAhead[str]()
    with pytest.raises(IndexError, match="no row"):
        rows.take(longest=True)


def test_both_ways_of_taking_give_each_row_once_and_keep_nothing_of_those_that_have_gone() -> None:
    rows, rng, taken = LookAhead[int](), random.Random(0), []
    for row in range(5000):
        rows.put(row, rng.randrange(100))
        if len(rows) == 50:
            taken.append(rows.take(longest=rng.random() < 0.2))
    assert len(rows._by_size) < 500
    while rows:
        taken.append(rows.take(longest=False))
    assert sorted(taken) == list(range(5000))
    assert rows.size == 0


async def test_after_scouts_of_each_the_dataset_with_long_answers_is_asked_first(
    job: Job, server: EngineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "GROUP_SECONDS", 0.01)  # what is known is what is on disk
    first, second = prompts(60), prompts(60, start=60)

    def script(request: Request) -> Reply:
        words = [FIRST_NUMBER] * (SHORT if is_of(first, request) else LONG)
        return Reply(ids=[*words, END], finish="stop", delay=0.01)

    def is_of(rows: list[dict[str, str]], request: Request) -> bool:
        return {"prompt": request.payload["messages"][-1]["content"]} in rows

    server.script = script
    job.datasets, job.generation = {"short": first, "long": second}, {"concurrency": 4}
    _, progress = await job.use(server).generate()
    assert progress.ok == 120
    asked = [is_of(first, request) for request in server.requests]
    assert asked[: 2 * SCOUTS].count(True) == SCOUTS
    assert all(asked[-(60 - SCOUTS - 4) :]), "what comes last is short"


async def test_within_a_dataset_the_longest_prompts_read_ahead_go_first(
    job: Job, server: EngineServer
) -> None:
    server.script = lambda _: Hold()
    job.datasets = {"A": [*prompts(20), {"prompt": "w1 " * 50}]}
    job.generation = {"concurrency": 3}
    async with job.use(server).generating():
        await until(lambda: server.in_flight == 3)
        assert max(len(request.prompt_ids) for request in server.requests) > 50


async def test_with_a_token_budget_rows_go_in_their_order_for_it_shall_not_leave_out_the_short_ones(
    job: Job, server: EngineServer
) -> None:
    job.datasets = {"A": [*prompts(20), {"prompt": "w1 " * 50}]}
    job.generation, job.dataset_fields = {"concurrency": 1}, {"maxTokens": 16}
    await job.use(server).generate()
    assert [line["sample_id"] for line in job.lines()] == [0]


async def test_the_next_dataset_fills_the_places_that_the_tail_of_another_leaves(
    job: Job, server: EngineServer
) -> None:
    """No place is empty while any dataset has a row left: one row of each holds on to the end."""
    server.script = lambda request: Hold() if request.number % 10 == 0 else Reply(delay=0.01)
    job.datasets = {name: prompts(30, start=30 * i) for i, name in enumerate("ABC")}
    job.generation = {"concurrency": 12}
    async with job.use(server).generating() as task:
        await until(lambda: server.count == 90)
        assert len(server.held) == 9
        server.script = lambda _: Reply()
        server.let_go()
        _, progress = await task
    assert (progress.ok, server.most_in_flight) == (90, 12)
