"""The plan looks at the folder of the answers, and refuses it before any server is started."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable

import pytest

from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.plan.planning import plan
from tests.support.engine_server import EngineServer, Fail, Hold, Reply
from tests.support.job import Job, prompts, until


def ask_otherwise(job: Job) -> None:
    job.sampling |= {"temperature": "0.5"}


def change_the_text(job: Job) -> None:
    job.datasets = {"A": [*prompts(15), *prompts(5, start=100)]}


def lose_run_json(job: Job) -> None:
    (job.output / "A" / "run.json").unlink()


def lose_run_json_and_records(job: Job) -> None:
    lose_run_json(job)
    (job.output / "A" / "raw_responses.jsonl").unlink()


def leave_another_versions_run_json(job: Job) -> None:
    (job.output / "A" / "run.json").write_text('{"version": 9, "asked": {}}')


REFUSALS: dict[str, tuple[Callable[[Job], None], str, str]] = {
    "asked in another way": (
        ask_otherwise,
        "OutputFolderDiffers",
        r"fingerprint [0-9a-f]{16} there, [0-9a-f]{16} now\): sampling.temperature is 1.0 there and 0.5 now",
    ),
    "other prompts": (change_the_text, "OutputFolderDiffers", "5 prompts that were answered are gone"),
    "records without run.json": (
        lose_run_json,
        "OutputFolderUnbound",
        r"raw_responses\.jsonl has answers, but run\.json is not beside it.*Put its run\.json back",
    ),
    "dead letters without run.json": (
        lose_run_json_and_records,
        "OutputFolderUnbound",
        r"dead_letter\.jsonl has answers",
    ),
    "another version's run.json": (
        leave_another_versions_run_json,
        "OutputCorrupt",
        r"run\.json is not a run\.json of Draftmill",
    ),
}


@pytest.mark.parametrize("folder", REFUSALS)
async def test_a_folder_that_the_generator_would_refuse_is_refused_by_the_plan_in_the_same_words(
    job: Job, server: EngineServer, folder: str
) -> None:
    change, reason, sentence = REFUSALS[folder]
    refused = prompts(1)[0]["prompt"]
    server.script = lambda request: (
        Fail(400) if request.payload["messages"][0]["content"] == refused else Reply()
    )
    await job.use(server).generate()
    change(job)
    before = {path.name: path.read_bytes() for path in (job.output / "A").iterdir()}
    with pytest.raises(JobRefusedError, match=sentence) as planned:
        plan(job.config)
    with pytest.raises(JobRefusedError) as generated:
        await job.generate()
    assert planned.value.reason == generated.value.reason == reason
    assert planned.value.message == generated.value.message
    assert {path.name: path.read_bytes() for path in (job.output / "A").iterdir()} == before
    assert server.count == 20


async def test_a_folder_whose_answers_are_to_the_same_is_planned_and_left_as_it_is(
    job: Job, server: EngineServer
) -> None:
    await job.use(server).generate()
    job.datasets = {"A": [*reversed(prompts(20)), *prompts(5, start=100)]}
    before = {path.name: path.read_bytes() for path in (job.output / "A").iterdir()}
    assert plan(job.config).dataset_totals == [25]
    assert {path.name: path.read_bytes() for path in (job.output / "A").iterdir()} == before


async def test_a_folder_that_is_being_written_is_planned_without_a_wait(
    job: Job, server: EngineServer
) -> None:
    server.script = lambda _: Hold()
    async with job.use(server).generating() as task:
        await until(lambda: server.in_flight == 16)
        assert plan(job.config).dataset_totals == [20]
        server.script = lambda _: Reply()
        server.let_go()
        _, progress = await task
    assert progress.ok == 20


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP], ids=errno.errorcode.get)
async def test_a_volume_without_locks_is_refused_by_plan_and_generator(
    job: Job, server: EngineServer, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def flock(descriptor: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    sentence = rf"is on a volume without locks \({os.strerror(number)}\).*NFS: with its lock service"
    with pytest.raises(JobRefusedError, match=sentence) as planned:
        plan(job.config)
    with pytest.raises(JobRefusedError, match=sentence) as generated:
        await job.use(server).generate()
    assert planned.value.reason == generated.value.reason == "StorageCannotLock"
    assert server.count == 0
