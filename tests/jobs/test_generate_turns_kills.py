"""Conversations go on where they were: after kills, and with another number of workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftmill_api.exitcode import ExitCode
from tests.support.engine_server import EngineServer, Reply
from tests.support.generator_kills import talk_through_kills
from tests.support.job import Job, until
from tests.support.killing_worker import ForkedWorker
from tests.support.talks import check_histories, talks
from tests.support.workers import Workers


def test_killed_in_the_middle_of_conversations_every_turn_is_asked_once(tmp_path: Path) -> None:
    talk_through_kills(tmp_path, ForkedWorker("generate"), kills=3, seed=7, conversations=120)


async def test_a_conversation_is_one_workers_whoever_began_it(
    job: Job, server: EngineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.script = lambda _: Reply(delay=0.01)
    job.use(server).run = {"name": "r", "uid": "u"}
    job.datasets, job.dataset_fields = {"A": talks(60)}, {"turns": "EveryTurn"}
    workers = Workers(job, monkeypatch)
    for count, stop_after in ((2, 30), (3, 70)):
        begun = [await workers.start(index, count) for index in range(count)]
        await until(lambda: server.count >= stop_after)  # noqa: B023 - awaited here
        for task in begun:
            task.cancel()
        await until(lambda: all(task.done() for task in begun))  # noqa: B023 - likewise
    ended = await workers.all(2)
    assert [code for code, _ in ended] == [ExitCode.DONE] * 2
    check_histories(job)
    finished = job.finish().progress
    assert finished.total == sum(progress.total for _, progress in ended)
    assert finished.skipped == sum(progress.skipped for _, progress in ended) > 0
