"""Compressed records: as durable as bare ones, and read by everything that reads those."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftmill_api.exitcode import ExitCode
from draftmill_api.manifest import Manifest
from draftmill_cli.records import record_files, spread
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.finish.auditing import audit_folder
from draftmill_jobs.shared.lines import raw_lines
from tests.support.engine_server import EngineServer
from tests.support.job import Job, prompts, unique


@pytest.fixture
def compressed(job: Job, server: EngineServer) -> Job:
    job.compression = "Zstd"
    return job.use(server)


def records(job: Job) -> Path:
    return job.output / "A" / "raw_responses.jsonl.zst"


async def test_a_torn_frame_is_cut_off_and_its_rows_are_asked_again(
    compressed: Job, server: EngineServer
) -> None:
    await compressed.generate()
    compressed.datasets = {"A": prompts(30)}
    whole = records(compressed).read_bytes()
    await compressed.generate()
    records(compressed).write_bytes(records(compressed).read_bytes()[:-5])
    server.by_prompt.clear()
    code, progress = await compressed.generate()
    assert (code, progress.done, server.count) == (ExitCode.DONE, 30, 10)
    assert len(unique(compressed.lines())) == 30
    assert records(compressed).read_bytes().startswith(whole)
    assert compressed.finish().progress.ok == 30


async def test_a_broken_frame_before_good_ones_is_refused(compressed: Job) -> None:
    await compressed.generate()
    data = bytearray(records(compressed).read_bytes())
    data[len(data) // 2] ^= 255
    compressed.datasets = {"A": prompts(30)}
    records(compressed).unlink()
    await compressed.generate()
    records(compressed).write_bytes(data + records(compressed).read_bytes())
    with pytest.raises(JobRefusedError, match="the line at byte 0 is no record but lines after it are"):
        await compressed.generate()


async def test_compression_may_change_between_attempts(compressed: Job, server: EngineServer) -> None:
    await compressed.generate()
    compressed.datasets = {"A": prompts(30)}
    compressed.compression = "None"
    server.by_prompt.clear()
    _, progress = await compressed.generate()
    assert (progress.done, server.count) == (30, 10)
    assert len(unique(compressed.lines())) == 30
    assert compressed.finish().progress.ok == 30
    names = {path.name for path in (compressed.output / "A").glob("raw_responses*")}
    assert names == {"raw_responses.jsonl", "raw_responses.jsonl.zst"}


async def test_every_reader_reads_it(compressed: Job) -> None:
    await compressed.generate()
    lines = compressed.lines()
    compressed.finish()
    (dataset,) = Manifest.model_validate_json((compressed.output / "manifest.json").read_bytes()).datasets
    assert [(file.path, file.records) for file in dataset.files] == [("A/raw_responses.jsonl.zst", 20)]
    audit = audit_folder(compressed.output / "A")
    assert (audit.tally.done, audit.fault_count) == (20, 0)
    shown = [record.id for files in record_files(compressed.output).values() for record in spread(files, 2)]
    assert set(shown) <= unique(lines)
    assert (
        records(compressed).stat().st_size < sum(len(line.raw) for line in raw_lines(records(compressed))) / 3
    )
