"""Rows from many files, filtered and shuffled: the same ones are asked, whoever asks and however often."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from draftmill_api.exitcode import ExitCode
from tests.support.engine_server import EngineServer
from tests.support.job import Job, prompts, unique

SHORT = {"prompt": "w1"}


@pytest.fixture
def chosen(job: Job, server: EngineServer, tmp_path: Path) -> Job:
    """30 of 60 prompts that stand among others in three files."""
    folder = tmp_path / "prompts"
    folder.mkdir()
    rows = [row for prompt in prompts(60, start=1000) for row in (SHORT, prompt)]
    lines = "".join(json.dumps(row) + "\n" for row in rows[:50])
    (folder / "1.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    (folder / "2.json").write_text(json.dumps(rows[50:90]))
    parquet.write_table(pa.Table.from_pylist(rows[90:]), folder / "3.parquet")
    job.dataset_fields = {
        "source": {"folder": {"path": str(folder)}},
        "filters": {"minCharacters": 4},
        "shuffleSeed": 5,
        "maxSamples": 30,
    }
    return job.use(server)


def positions(job: Job) -> set[int]:
    return {record["sample_id"] for record in job.lines()}


async def test_a_larger_number_keeps_the_rows_that_were_asked(chosen: Job, server: EngineServer) -> None:
    code, progress = await chosen.generate()
    assert (code, progress.done, progress.total) == (ExitCode.DONE, 30, 30)
    first = positions(chosen)
    assert all(position % 2 == 1 for position in first), "positions are those of the source, files in order"
    assert min(first) < 50 <= max(first), "they are of all files"
    assert max(first) >= 90
    server.by_prompt.clear()
    chosen.dataset_fields["maxSamples"] = 40
    _, progress = await chosen.generate()
    assert (progress.done, server.count) == (40, 10)
    assert first < positions(chosen)
    result = chosen.finish()
    assert (result.progress.ok, result.progress.total) == (40, 40)


async def test_two_workers_share_the_rows_that_are_chosen(
    chosen: Job, server: EngineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    totals = []
    for worker in ("0/2", "1/2"):
        monkeypatch.setenv("DRAFTMILL_WORKER", worker)
        _, progress = await chosen.generate()
        totals.append(progress.total)
    monkeypatch.delenv("DRAFTMILL_WORKER")
    assert (sum(totals), len(unique(chosen.lines())), server.count) == (30, 30, 30)
    assert chosen.finish().progress.ok == 30


async def test_rows_left_by_a_crash_are_found_in_their_files_again(chosen: Job, server: EngineServer) -> None:
    await chosen.generate()
    asked = unique(chosen.lines())
    path = chosen.output / "A" / "raw_responses.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:17]) + lines[17][:20])
    server.by_prompt.clear()
    _, progress = await chosen.generate()
    assert (progress.done, server.count) == (30, 13)
    assert unique(chosen.lines()) == asked
