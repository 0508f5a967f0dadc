"""A server that is lost in the middle, and what it has to show before it gets rows again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from draftmill_api.exitcode import ExitCode
from draftmill_jobs.errors import JobFailedError, JobRefusedError
from draftmill_jobs.extract import vllm_backend
from tests.support.extract_job import ExtractJob
from tests.support.headed_model import make_headed_model
from tests.support.job import until
from tests.support.states_server import StatesServer, Trouble, assert_stored


def dies_at(server: StatesServer, row: int) -> Callable[[Sequence[int], int], Trouble | None]:
    """The server dies at this row of the mass."""
    return lambda _ids, _number: Trouble.DEATH if len(server.asked) == row else None


async def test_a_server_that_comes_back_is_proven_anew_beside_rows_that_hold_the_whole_budget(
    job: ExtractJob, server: StatesServer
) -> None:
    """Rows that wait for the server keep their part of the budget: the proof must not wait for them."""
    job.add(20, 20)
    job.add_many(8, longest=10)
    job.fields["inFlightTokens"] = 12
    server.trouble = dies_at(server, 4)

    extracting = asyncio.create_task(job.extract())
    await until(lambda: server.is_dead)
    told = len(server.told)
    server.is_dead = False
    code, progress = await extracting

    assert (code, progress.rows, progress.quarantined) == (ExitCode.DONE, 9, 0)
    assert len(server.told) == 2 * told
    assert_stored(job, server)


@pytest.mark.parametrize("change", ["model", "layers", "max_model_len"])
async def test_a_server_that_comes_back_as_another_one_is_refused_before_the_other_rows(
    job: ExtractJob, server: StatesServer, tmp_path: Path, change: str
) -> None:
    """It comes back before anybody looks: all that shows is that connections were lost."""
    job.add_many(100)
    server.trouble = dies_at(server, 7)
    extracting = asyncio.create_task(job.extract())
    await until(lambda: server.is_dead)
    match change:
        case "model":
            server.teach(make_headed_model(tmp_path / "another", seed=1))
        case "layers":
            server.layers += 1
        case _:
            server.max_model_len = 4
    server.is_dead = False

    with pytest.raises(JobRefusedError) as refused:
        await extracting

    assert refused.value.reason == "PreflightFailed"
    assert len(server.asked) < 50, "more than what was on its way"
    assert not list(server.staging.iterdir())


async def test_what_a_lost_server_wrote_and_told_nobody_of_is_gone_before_another_one_writes(
    job: ExtractJob, server: StatesServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder has room for the rows on their way, which are asked for again, and not for both."""
    monkeypatch.setattr(vllm_backend, "_keep_purging", lambda _: asyncio.Event().wait())
    job.add_many(30)
    server.trouble = lambda *_: Trouble.DEATH_AFTER_WRITING if len(server.asked) == 7 else None
    extracting = asyncio.create_task(job.extract())
    await until(lambda: server.is_dead)
    orphan = server.written[-1]
    assert orphan.exists()

    server.holding.clear()
    server.is_dead = False
    await until(lambda: server.waiting > 0)
    assert not orphan.exists()
    server.holding.set()
    await extracting

    assert_stored(job, server)


async def test_an_extractor_whose_server_stays_away_ends_in_bounded_time_and_loses_nothing(
    job: ExtractJob, server: StatesServer
) -> None:
    """Public failure 34 (vllm-project/speculators#412): with its server gone for good, a job hangs."""
    job.add_many(30)
    job.fields["outageTimeout"] = "1s"
    server.trouble = dies_at(server, 7)

    with pytest.raises(JobFailedError, match=r"no server could be used for 1s \(outageTimeout\); s0: ") as e:
        await job.extract()

    assert (e.value.reason, e.value.exit_code) == ("ServersUnreachable", ExitCode.FAILED)
    server.is_dead = False
    server.trouble = lambda _ids, _number: None
    _, progress = await job.extract()
    assert (progress.rows, progress.quarantined) == (30, 0)
    assert_stored(job, server)


async def test_a_server_whose_metrics_hang_computes_as_fast_as_any(
    job: ExtractJob, server: StatesServer
) -> None:
    """They are looked at every second; who waits for them waits twenty."""
    job.add_many(30)
    server.metrics_hang = True
    server.holding.clear()

    extracting = asyncio.create_task(job.extract())
    await until(lambda: server.metrics_asked > 0)
    server.holding.set()
    async with asyncio.timeout(15):
        code, progress = await extracting

    assert (code, progress.rows, progress.retried) == (ExitCode.DONE, 30, 0)
    assert_stored(job, server)
