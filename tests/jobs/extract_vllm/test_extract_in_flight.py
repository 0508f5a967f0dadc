"""What is on its way from server to store: bounded, kept until it is durable, deleted when left over."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from draftmill_api.v1alpha1.extractrun import StateDtype
from draftmill_jobs.extract import worker
from draftmill_jobs.store import StoreWriter
from draftmill_jobs.store.layout import HEADER_BYTES, StateLayout
from tests.support.extract_job import ExtractJob
from tests.support.headed_model import HIDDEN
from tests.support.job import until
from tests.support.states_server import StatesServer, assert_stored, use


async def test_no_more_tokens_are_staged_than_the_budget(job: ExtractJob, server: StatesServer) -> None:
    job.add_many(60, longest=30)
    job.fields["inFlightTokens"] = 64

    await job.extract()

    assert 32 < server.most_staged <= 64
    assert_stored(job, server)


async def test_no_more_rows_are_asked_for_at_once_than_a_server_batches(
    job: ExtractJob, server: StatesServer
) -> None:
    """All of these fit into the budget of tokens, and no server takes thousands of connections at once."""
    job.add_many(800, longest=8)
    job.fields["inFlightTokens"] = 65_536

    extracting = asyncio.create_task(job.extract())
    await until(lambda: bool(server.asked), within=60)
    server.holding.clear()
    await until(lambda: server.waiting >= 256, within=60)
    with pytest.raises(TimeoutError):
        await until(lambda: server.waiting > 256, within=2)
    server.holding.set()
    await extracting

    assert_stored(job, server)


async def test_a_row_that_is_longer_than_the_budget_goes_alone(job: ExtractJob, server: StatesServer) -> None:
    job.add(100, 100)
    job.add_many(30, longest=30)
    job.fields["inFlightTokens"] = 64

    await job.extract()

    assert server.most_staged == 200
    assert_stored(job, server)


async def test_a_staged_file_stays_until_its_row_is_durable(
    job: ExtractJob, server: StatesServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "StoreWriter", partial(StoreWriter, group_seconds=600.0))
    for _ in range(6):
        job.add(3, 5)
    five_rows = 5 * StateLayout(server.layers, HIDDEN, StateDtype.FLOAT32).block(8).end

    def hold_the_sixth(_ids: object, _number: int) -> None:
        if len(server.asked) == 5:
            server.holding.clear()

    def written() -> int:
        return sum(path.stat().st_size - HEADER_BYTES for path in job.output.glob("*.partial"))

    server.trouble = hold_the_sixth
    extracting = asyncio.create_task(job.extract())
    await until(lambda: written() == five_rows)

    journalled = [line for path in job.output.glob("*.journal") for line in path.read_text().splitlines()]
    staged = list(server.staging.glob("*.safetensors"))

    server.holding.set()
    await extracting
    assert (len(staged), journalled) == (5, [])
    assert_stored(job, server)


async def test_files_of_an_earlier_start_are_deleted_and_those_of_others_stay(
    job: ExtractJob, server: StatesServer
) -> None:
    job.add_many(3)
    job.run["uid"] = "mine"
    stranger = server.staging / "cmpl-draftmill-theirs-w0-1-0-a.safetensors"
    for path in (server.staging / "cmpl-draftmill-mine-w0-1-0-a.safetensors", stranger):
        path.write_bytes(b"half")
        path.with_name(path.name + ".lock").touch()

    await job.extract()

    assert sorted(path.name for path in server.staging.iterdir()) == [stranger.name, stranger.name + ".lock"]


async def test_runs_without_a_uid_delete_their_own_files_and_not_each_others(
    job: ExtractJob, server: StatesServer, model: Path, tmp_path: Path
) -> None:
    other = use(ExtractJob(tmp_path / "other", model), server).add_many(3)
    await job.add_many(3).extract()
    left = server.written[-1]
    left.write_bytes(b"of a start that was killed")

    await other.extract()
    assert left.exists()

    await job.add_many(1).extract()
    assert not left.exists()
