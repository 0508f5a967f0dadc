"""The second look at a store.

Reported by users of other tools: there is no final count of N of M; a broken file counts as done.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from draftmill_api.exitcode import ExitCode
from draftmill_api.jobconfig import JobModel
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.model.facts import read_model
from draftmill_jobs.model.fingerprint import tokenizer_hash
from tests.support.extract_job import ExtractJob
from tests.support.tiny_llama import make_tiny_llama


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_llama(tmp_path_factory.mktemp("llama") / "tiny")


@pytest.fixture
async def job(tmp_path: Path, llama: Path) -> ExtractJob:
    job = ExtractJob(tmp_path / "job", llama).add_many(6)
    await job.extract()
    return job


async def test_a_whole_store_gets_a_manifest_that_says_what_it_is_made_of(job: ExtractJob) -> None:
    job.add(2, 2, status="malformed")
    result = job.finish()

    model = read_model(JobModel(name="tiny", path=str(job.model)))
    manifest = json.loads((job.output / "manifest.json").read_text())
    assert manifest["tokenizerSHA256"] == tokenizer_hash(job.model)
    assert manifest["chatTemplateSHA256"] == model.tokenizer.template_hash
    assert manifest["skipped"] == {"status": 1, "long": 0, "noAnswer": 0, "limit": 0}
    assert manifest["binding"]["layerIds"] == [1, 2, 4]
    assert manifest["binding"]["layerConvention"] == "entering layer"
    assert manifest["binding"]["backend"] == "Transformers"
    assert manifest["computedIn"] == {"Float32": 6}
    assert manifest["model"]["fingerprint"] == job.fingerprint
    assert (manifest["rows"], manifest["tokens"]) == (result.rows, result.tokens)
    assert sum(shard["tokens"] for shard in manifest["shards"]) == result.tokens
    assert manifest["source"]["sha256"] == job.plan().input_sha256


async def test_a_flipped_bit_is_found(job: ExtractJob) -> None:
    (shard,) = job.output.glob("*.safetensors")
    content = bytearray(shard.read_bytes())
    content[-5000] ^= 1
    shard.write_bytes(content)

    with pytest.raises(JobRefusedError, match="has changed since it was written"):
        job.finish()


async def test_a_broken_shard_is_extracted_again_when_it_was_removed(job: ExtractJob) -> None:
    (shard,) = job.output.glob("*.safetensors")
    content = bytearray(shard.read_bytes())
    content[-5000] ^= 1
    shard.write_bytes(content)
    with pytest.raises(JobRefusedError, match=f"{shard.name}: .*or remove it and run again"):
        job.finish()

    shard.unlink()
    code, progress = await job.extract()

    assert (code, progress.rows, job.finish().rows) == (ExitCode.DONE, 6, 6)


async def test_a_shard_that_was_cut_never_counts_as_done(job: ExtractJob) -> None:
    (shard,) = job.output.glob("*.safetensors")
    shard.write_bytes(shard.read_bytes()[:-50])

    with pytest.raises(JobRefusedError, match=f"{shard.name}: it has .*or remove it and run again"):
        await job.extract()
    with pytest.raises(JobRefusedError, match=f"{shard.name}: it has .*or remove it and run again"):
        job.finish()

    shard.unlink()
    code, progress = await job.extract()

    assert (code, progress.rows, job.finish().rows) == (ExitCode.DONE, 6, 6)


async def test_a_row_that_is_missing_is_named(job: ExtractJob) -> None:
    record = job.add(2, 2)

    with pytest.raises(
        JobRefusedError, match=f"row A/{record['id']} is neither in the store nor in the quarantine"
    ):
        job.finish()

    assert json.loads((job.output / "summary.json").read_text())["accounted"] is False
    assert not (job.output / "manifest.json").exists()


async def test_a_row_that_the_run_no_longer_selects_is_named(job: ExtractJob) -> None:
    job.fields["maxRows"] = 5

    with pytest.raises(JobRefusedError, match="is in the store and not among the rows that this run selects"):
        job.finish()


async def test_a_row_whose_record_has_other_tokens_now_is_named(job: ExtractJob) -> None:
    record = job.records[2]
    record["output_ids"][0] = record["output_ids"][0] % 900 + 20

    with pytest.raises(JobRefusedError, match="has other token ids or another loss mask than its record"):
        job.finish()


async def test_a_store_of_other_layers_is_refused_with_both(job: ExtractJob) -> None:
    job.fields["layers"] = {"ids": [1, 3]}

    with pytest.raises(JobRefusedError, match=r"another layerIds: \[1, 2, 4\] there, \[1, 3, 4\] now"):
        job.finish()
    with pytest.raises(JobRefusedError, match=r"choose another output\.path"):
        job.plan()


async def test_workers_that_share_the_rows_make_one_store(
    tmp_path: Path, llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = ExtractJob(tmp_path / "shared", llama).add_many(12)
    for worker in range(2):
        monkeypatch.setenv("DRAFTMILL_WORKER", f"{worker}/2")
        code, _ = await job.extract()
        assert code is ExitCode.DONE

    assert job.finish().rows == 12
    assert {path.name.split("-")[1] for path in job.output.glob("*.safetensors")} == {"w0", "w1"}


async def test_float8_states_carry_their_error(tmp_path: Path, llama: Path) -> None:
    job = ExtractJob(tmp_path / "small", llama, fields={"dtype": "Float8"}).add_many(4)
    await job.extract()

    job.finish()

    error = json.loads((job.output / "manifest.json").read_text())["float8Error"]
    assert 0 < error["mean"] < error["worst"] < 0.1


async def test_a_finished_store_is_left_alone_by_another_start(job: ExtractJob) -> None:
    before = job.finish()

    code, progress = await job.extract()

    assert (code, progress.rows) == (ExitCode.DONE, 6)
    assert job.finish() == before
