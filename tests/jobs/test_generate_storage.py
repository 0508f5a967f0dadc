"""A volume that is full or read-only: nothing is half written, nothing lost, and on it goes when it can."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator

import pytest

from draftmill_api.exitcode import ExitCode
from draftmill_api.progress import WorkerState
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.plan.planning import plan
from draftmill_jobs.shared.storage import ROOM_SECONDS
from tests.support.engine_server import EngineServer, Reply
from tests.support.forked import ForkedProgram
from tests.support.job import Job, prompts, unique, until
from tests.support.job_pages import progress_when
from tests.support.ports import free_port
from tests.support.small_volume import SmallVolume, read_only, small_volume
from tests.support.waiting import quiet_for

ROOM = 1 << 20
ROWS = 200


@pytest.fixture
def volume(job: Job) -> Iterator[SmallVolume]:
    with small_volume(job.output, ROOM) as volume:
        yield volume


@pytest.fixture
def slow(job: Job, server: EngineServer) -> EngineServer:
    server.script = lambda _: Reply(delay=0.02)
    job.use(server).datasets = {"A": prompts(ROWS)}
    return server


def written(job: Job) -> int:
    """Whole lines so far."""
    path = job.output / "A" / "raw_responses.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


async def test_a_full_volume_pauses_the_run_and_room_lets_it_go_on(
    job: Job, slow: EngineServer, volume: SmallVolume
) -> None:
    port = free_port()
    async with job.generating(port) as running:
        await until(lambda: written(job) > 20)
        volume.fill()
        said = await progress_when(port, lambda seen: seen.state is WorkerState.STORAGE_FULL)
        assert "No space left on device" in said.message
        assert str(job.output / "A" / "raw_responses.jsonl") in said.message
        await until(lambda: slow.in_flight == 0)
        asked = slow.count
        assert asked - len(job.lines()) <= 2 * 16 + 64, "in-flight answers and one group wait in memory"
        await asyncio.to_thread(quiet_for, 1.2 * ROOM_SECONDS)
        assert slow.count == asked, "nothing is admitted without room"
        volume.make_room()
        code, progress = await running
    assert (code, progress.done, slow.count) == (ExitCode.DONE, ROWS, ROWS)
    assert len(unique(job.lines())) == ROWS
    assert job.finish().progress.ok == ROWS


async def test_a_volume_that_is_full_from_the_start_is_waited_for(
    job: Job, slow: EngineServer, volume: SmallVolume
) -> None:
    volume.fill()
    port = free_port()
    async with job.generating(port) as running:
        await progress_when(port, lambda seen: seen.state is WorkerState.STORAGE_FULL)
        assert slow.count == 0
        volume.make_room()
        code, progress = await running
    assert (code, progress.done) == (ExitCode.DONE, ROWS)


async def test_sigterm_while_it_waits_for_room_ends_it_in_order(
    job: Job, slow: EngineServer, volume: SmallVolume
) -> None:
    port = str(free_port())
    arguments = ("generate", "--config", str(job.write()), "--http-port", port, "--grace-period", "5")
    with ForkedProgram(job.folder, *arguments) as program:
        await until(lambda: written(job) > 20, within=60.0)
        volume.fill()
        await progress_when(int(port), lambda seen: seen.state is WorkerState.STORAGE_FULL)
        code, said = await asyncio.to_thread(program.stop, signal.SIGTERM)
    assert code == ExitCode.INTERRUPTED, said
    assert "for which there is no room" in said, said
    kept = unique(job.lines())
    assert 20 < len(kept) < ROWS
    volume.make_room()
    await job.generate()
    assert len(unique(job.lines())) == ROWS
    assert kept <= unique(job.lines())


async def test_a_read_only_volume_is_refused_with_a_sentence(
    job: Job, server: EngineServer, volume: SmallVolume
) -> None:
    await job.use(server).generate()
    volume.make_read_only()
    with pytest.raises(JobRefusedError, match="Read-only file system; what is there") as refused:
        await job.generate()
    assert refused.value.reason == "StorageNotWritable"
    assert len(unique(job.lines())) == 20


@pytest.mark.parametrize("place", ["A", "A/raw_responses.jsonl", "A/.run.json.lock"])
async def test_what_a_generator_could_not_write_is_refused_by_the_plan_by_name(
    job: Job, server: EngineServer, place: str
) -> None:
    await job.use(server).generate()
    with (
        read_only(job.output / place),
        pytest.raises(JobRefusedError, match=rf"cannot write to \S+/{place}: Read-only") as refused,
    ):
        plan(job.config)
    assert refused.value.reason == "StorageNotWritable"
