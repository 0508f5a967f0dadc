"""Every row once, whatever the server does.

Reported by users of other tools, and tested here: the final layer's id is dropped, so that three states come
where four were asked for; states are all zero; states are NaN or infinite; states are shorter than their
tokens; a truncated file counts as done; a row that is too long is cut in its ids and not in its states; many
rows fail and the run still succeeds with few.
"""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import numpy as np
import pytest

from draftmill_api.exitcode import ExitCode
from draftmill_api.jobconfig import JobModel
from draftmill_api.store import ComputedIn
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.model.facts import read_model
from tests.support.extract_job import ExtractJob
from tests.support.forked import ForkedProgram
from tests.support.headed_model import HIDDEN
from tests.support.job import until
from tests.support.states_server import (
    StatesServer,
    Trouble,
    assert_stored,
    ids_of,
    on_try,
    states_of,
    use,
    with_rows,
)


async def test_every_row_is_stored_as_the_server_computed_it(job: ExtractJob, server: StatesServer) -> None:
    job.add_many(40)

    code, progress = await job.extract()

    assert (code, progress.rows, progress.total, progress.retried) == (ExitCode.DONE, 40, 40, 0)
    assert sorted(server.asked) == sorted(tuple(ids_of(record)) for record in job.records)
    assert_stored(job, server)


async def test_a_row_that_is_too_long_is_cut_in_ids_mask_and_states_alike(
    job: ExtractJob, server: StatesServer
) -> None:
    """Reported failure 27 (AngelSlim#288): the longest length was ignored."""
    job.add(4, 30)
    job.add(4, 6)
    job.fields["maxRowTokens"] = 12

    await job.extract()
    job.finish()

    with job.store() as store:
        cut, whole = sorted(store, key=lambda row: row.line.id != job.records[0]["id"])
        assert cut.token_ids.tolist() == ids_of(job.records[0])[:12]
        assert cut.loss_mask.tolist() == [0] * 4 + [1] * 8
        assert np.array_equal(cut.values(), states_of(ids_of(job.records[0])[:12], server.layers, HIDDEN))
        assert whole.token_ids.tolist() == ids_of(job.records[1])
        assert store.manifest is not None
        assert (store.manifest.cut_rows, store.manifest.cut_tokens) == (1, 22)


async def test_states_of_16_bits_are_stored_bit_for_bit(job: ExtractJob, server: StatesServer) -> None:
    job.add_many(5)
    job.fields["dtype"] = "BFloat16"
    server.bfloat16 = True

    await job.extract()

    with job.store() as store:
        for row in store:
            expected = states_of(row.token_ids.tolist(), server.layers, HIDDEN).view(np.uint32) >> 16
            assert np.array_equal(row.bits(), expected)


async def test_the_manifest_counts_rows_by_the_dtype_that_servers_computed_them_in(
    job: ExtractJob, server: StatesServer
) -> None:
    job.fields["dtype"] = "BFloat16"
    await job.add_many(5).extract()
    server.bfloat16 = True
    await job.add_many(3).extract()

    job.finish()

    with job.store() as store:
        assert store.manifest is not None
        assert store.manifest.computed_in == {ComputedIn.BFLOAT16: 3, ComputedIn.FLOAT32: 5}


@pytest.mark.parametrize(
    "trouble",
    [
        Trouble.TORN,
        Trouble.MISSING,
        Trouble.SHORT,
        Trouble.ZERO,
        Trouble.NOT_A_NUMBER,
        Trouble.INFINITE,
        Trouble.OTHER_TOKENS,
        Trouble.LAYER_DROPPED,
        Trouble.SERVER_ERROR,
    ],
    ids=lambda trouble: trouble.name.lower(),
)
async def test_what_cannot_be_right_is_asked_again(
    job: ExtractJob, server: StatesServer, trouble: Trouble
) -> None:
    job.add_many(6)
    server.trouble = on_try(trouble)

    code, progress = await job.extract()

    assert (code, progress.rows, progress.quarantined, progress.retried) == (ExitCode.DONE, 6, 0, 6)
    assert_stored(job, server)


async def test_a_file_is_read_when_its_lock_is_free(job: ExtractJob, server: StatesServer) -> None:
    job.add_many(8)
    server.trouble = on_try(Trouble.SLOW_WRITE)

    _, progress = await job.extract()

    assert (progress.rows, progress.retried) == (8, 0)
    assert_stored(job, server)


@pytest.mark.parametrize(
    ("trouble", "reason", "tries"),
    [
        (Trouble.NOT_A_NUMBER, "not_a_number", 2),
        (Trouble.INFINITE, "infinite", 2),
        (Trouble.ZERO, "all_zero", 2),
        (Trouble.ALL_ZERO, "all_zero", 2),
        (Trouble.SHORT, "wrong_length", 2),
        (Trouble.OTHER_TOKENS, "other_tokens", 2),
        (Trouble.LAYER_DROPPED, "wrong_shape", 2),
        (Trouble.TORN, "not_staged", 2),
        (Trouble.BAD_REQUEST, "bad_request", 1),
    ],
)
async def test_a_row_that_never_is_right_is_quarantined_counted_and_named(
    job: ExtractJob, server: StatesServer, trouble: Trouble, reason: str, tries: int
) -> None:
    """Reported failure 6 (vllm-project/vllm#46301, speculators#613): all states were zero."""
    job.add_many(100, longest=8)
    job.fields["retries"] = 1
    bad = job.records[17]
    server.trouble = with_rows(trouble, [ids_of(bad)])

    code, progress = await job.extract()

    assert (code, progress.rows, progress.quarantined) == (ExitCode.DONE, 99, 1)
    (line,) = (json.loads(line) for line in (job.output / "quarantine.jsonl").read_text().splitlines())
    assert (line["id"], line["reason"], line["tries"]) == (bad["id"], reason, tries)
    (failure,) = job.finish().failures
    assert (failure.reason, failure.count, failure.id) == (reason, 1, f"A/{bad['id']}")
    assert_stored(job, server, without=1)


async def test_rows_that_are_bad_in_different_ways_are_counted_and_named_by_their_ways(
    job: ExtractJob, server: StatesServer
) -> None:
    """Reported failure 8 (vllm-project/speculators#615): NaN and infinite states."""
    job.add_many(200, longest=8)
    job.fields["retries"] = 0
    bad = {Trouble.NOT_A_NUMBER: job.records[17], Trouble.INFINITE: job.records[117]}
    troubles = {tuple(ids_of(record)): trouble for trouble, record in bad.items()}
    server.trouble = lambda ids, _number: troubles.get(tuple(ids))

    code, progress = await job.extract()

    assert (code, progress.rows, progress.quarantined) == (ExitCode.DONE, 198, 2)
    failures = {(failure.reason, failure.count, failure.id) for failure in job.finish().failures}
    assert failures == {(trouble.name.lower(), 1, f"A/{record['id']}") for trouble, record in bad.items()}
    assert_stored(job, server, without=2)


@pytest.mark.parametrize("trouble", [Trouble.ZERO, Trouble.SERVER_ERROR, Trouble.BAD_REQUEST])
async def test_a_run_of_which_more_than_one_percent_is_quarantined_fails(
    job: ExtractJob, server: StatesServer, trouble: Trouble
) -> None:
    """Reported failure 34 (speculators, seen in its code): many rows fail, and a run ends well."""
    job.add_many(100, longest=8)
    job.fields["retries"] = 0
    server.trouble = with_rows(trouble, [ids_of(record) for record in job.records[::3]])

    with pytest.raises(JobRefusedError, match=r"\d+ of 100 rows are quarantined, more than 1 %") as refused:
        await job.extract()

    assert refused.value.reason == "TooManyQuarantined"
    with pytest.raises(JobRefusedError):
        job.finish()


async def test_a_quarantined_row_is_left_alone_until_another_run_begins(
    job: ExtractJob, server: StatesServer
) -> None:
    job.add_many(100, longest=8)
    job.fields["retries"] = 0
    job.run["uid"] = "one"
    server.trouble = with_rows(Trouble.ZERO, [ids_of(job.records[5])])
    await job.extract()
    server.trouble = lambda _ids, _number: None
    server.asked.clear()

    await job.extract()
    assert server.asked == []

    job.run["uid"] = ""
    _, progress = await job.extract()
    assert (progress.rows, progress.quarantined) == (100, 0)
    assert_stored(job, server)


async def test_a_server_that_dies_and_comes_back_costs_nothing(job: ExtractJob, server: StatesServer) -> None:
    job.add_many(30)
    job.fields["retries"] = 0
    server.trouble = lambda _ids, _number: Trouble.DEATH if len(server.asked) == 7 else None

    extracting = asyncio.create_task(job.extract())
    await until(lambda: server.is_dead)
    server.is_dead = False
    code, progress = await extracting

    assert (code, progress.rows, progress.quarantined) == (ExitCode.DONE, 30, 0)
    assert_stored(job, server)


async def test_a_row_that_kills_every_server_is_quarantined_and_takes_no_other_with_it(
    job: ExtractJob, server: StatesServer
) -> None:
    job.add_many(100, longest=8)
    deadly = job.records[50]
    server.trouble = with_rows(Trouble.DEATH, [ids_of(deadly)])

    extracting = asyncio.create_task(job.extract())
    while not extracting.done():
        await until(lambda: server.is_dead or extracting.done(), within=60)
        server.is_dead = False
    _, progress = await extracting

    assert (progress.rows, progress.quarantined) == (99, 1)
    assert_stored(job, server, without=1)


async def test_sigterm_ends_with_work_left_and_the_next_start_asks_only_for_the_rest(
    job: ExtractJob, server: StatesServer
) -> None:
    job.add_many(40)
    held = 12

    def stop_at(_ids: object, _number: int) -> None:
        if len(server.asked) == held:
            signal.raise_signal(signal.SIGTERM)

    server.trouble = stop_at
    code, progress = await job.extract()

    assert code is ExitCode.INTERRUPTED
    assert held <= progress.rows < 40
    stored = progress.rows
    server.trouble = lambda _ids, _number: None
    server.asked.clear()
    code, progress = await job.extract()

    assert (code, progress.rows) == (ExitCode.DONE, 40)
    assert len(server.asked) == 40 - stored
    assert_stored(job, server)


async def test_input_that_grew_and_changed_its_order_gives_neither_gaps_nor_duplicates(
    job: ExtractJob, server: StatesServer
) -> None:
    """Reported failure 33 (vllm-project/speculators#716): rows were known by their number."""
    job.add_many(10)
    await job.extract()
    job.add_many(5)
    job.records.reverse()

    _, progress = await job.extract()

    assert progress.rows == 15
    assert_stored(job, server)


async def test_killed_at_any_moment_it_goes_on_where_it_was(job: ExtractJob, server: StatesServer) -> None:
    job.add_many(60)
    for kill in range(1, 4):
        with ForkedProgram(job.folder, "extract", "--config", str(job.write())):
            await until(lambda wanted=12 * kill: len(server.asked) >= wanted, within=120)

    code, progress = await job.extract()

    assert (code, progress.rows) == (ExitCode.DONE, 60)
    assert_stored(job, server)


async def test_two_servers_share_the_rows(
    job: ExtractJob, server: StatesServer, model: Path, tmp_path: Path
) -> None:
    facts = read_model(JobModel(name="tiny", path=str(model))).facts
    async with StatesServer(model, facts, server.staging) as other:
        use(job, server, other).add_many(40)
        await job.extract()

        assert server.asked
        assert other.asked
        assert_stored(job, server)


async def test_progress_is_served_in_the_extractions_own_terms(job: ExtractJob, server: StatesServer) -> None:
    job.add_many(10)
    server.trouble = lambda _ids, _number: None
    async with server.held():
        extracting = asyncio.create_task(job.extract())
        await until(lambda: server.waiting > 0)
    _, progress = await extracting

    assert progress.bytes > 0
    assert progress.size.endswith("B")
    assert progress.staged_bytes == 0
