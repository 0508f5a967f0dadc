"""What is said, and refused, before any server is started.

Reported by users of other tools: the disk is full after a day; the width of a multimodal model is read from
the wrong place; half a file counts as done.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from draftmill_api.v1alpha1.extractrun import StateDtype
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.extract.planning import store_size
from draftmill_jobs.shared.formats import byte_size
from draftmill_jobs.store import audit_store
from draftmill_jobs.store.layout import StateLayout
from tests.support.extract_job import ExtractJob
from tests.support.filled_store import fill
from tests.support.headed_model import HIDDEN, LAYERS, make_headed_model

TOKENS = 14_440_000


def planned_for_vllm(folder: Path, model: Path, **fields: Any) -> ExtractJob:
    """Its servers need torch, and not its jobs."""
    return ExtractJob(folder / "job", model, fields={"backend": "VLLM", **fields})


@pytest.fixture
def job(tmp_path: Path) -> ExtractJob:
    return planned_for_vllm(tmp_path, make_headed_model(tmp_path / "model"))


def test_the_states_of_kimi_k25_at_ten_thousand_rows_are_828_gb() -> None:
    layout = StateLayout(4, 7168, StateDtype.BFLOAT16)

    size = store_size(layout, rows=10_000, tokens=TOKENS, shard_bytes=4 << 30)

    told = size.describe(layout, TOKENS)
    assert told.startswith(
        "828 GB for 4 states of 7168 BFloat16 for each of 14440000 tokens, and 285 MB for "
    )
    assert told.endswith("for ids, masks and index")
    assert size.states == TOKENS * 4 * 7168 * 2
    assert TOKENS * 5 < size.other < size.states / 1000


def test_a_plan_for_a_model_of_61_layers_counts_four_states_of_its_width(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = make_headed_model(tmp_path / "model", num_hidden_layers=61, hidden_size=7168)
    job = planned_for_vllm(tmp_path, model, layers={"default": True}, dtype="BFloat16")
    job.add(44, 1400)

    with caplog.at_level("INFO"):
        plan = job.plan()

    assert plan.layer_ids == [2, 30, 58, 61]
    assert plan.state_bytes == TOKENS * 4 * 7168 * 2 // 10_000
    assert "82.8 MB for 4 states of 7168 BFloat16 for each of 1444 tokens, and 1.06 MB for ids" in caplog.text


def test_float8_states_are_half_and_their_scales_are_counted_apart() -> None:
    layout = StateLayout(4, 7168, StateDtype.FLOAT8)

    size = store_size(layout, rows=10_000, tokens=TOKENS, shard_bytes=4 << 30)

    assert byte_size(size.states) == "414 GB"
    assert size.other > TOKENS * (4 * 4 + 5)


def test_a_plan_says_what_servers_and_storage_have_to_hold(job: ExtractJob) -> None:
    job.add(4, 10)
    job.add(2, 30)
    job.add(2, 2, status="malformed")
    job.fields |= {"maxRowTokens": 20}

    plan = job.plan()

    assert plan.layer_ids == [1, 2, LAYERS]
    assert (plan.rows, plan.tokens, plan.longest_row) == (2, 34, 20)
    assert (plan.cut_rows, plan.cut_tokens, plan.skipped.status) == (1, 12, 1)
    assert plan.state_bytes == 34 * 3 * HIDDEN * 4
    assert plan.bytes_free > plan.state_bytes + plan.other_bytes
    assert plan.input_sha256 == job.plan().input_sha256
    assert not any(job.output.iterdir())


def test_the_width_of_a_model_with_a_text_part_is_that_of_the_text_part(tmp_path: Path) -> None:
    """Reported failure 17 (SpecForge#839): the width of a multimodal model was read from its top level."""
    text = {"num_hidden_layers": 12, "hidden_size": 64, "vocab_size": 2000}
    model = make_headed_model(tmp_path / "model", hidden_size=8, text_config=text)
    job = planned_for_vllm(tmp_path, model)
    job.add(2, 2)

    plan = job.plan()

    assert (plan.model.hidden_size, plan.layer_ids) == (64, [1, 2, 12])


def test_a_store_that_does_not_fit_is_refused_with_both_figures(tmp_path: Path) -> None:
    """Reported failure 37 (SpecForge#426): 35 TB were wanted, seen when the disk was full."""
    job = planned_for_vllm(tmp_path, make_headed_model(tmp_path / "model", hidden_size=100_000_000))
    job.add(1000, 1000)

    with pytest.raises(JobRefusedError, match=r"needs 2\.\d\d TB more .* and .* has .*B free") as refused:
        job.plan()

    assert refused.value.reason == "InsufficientStorage"


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"rowFilter": ["repetition"]}, r"becomes a row: status 1"),
        ({"maxRowTokens": 2}, r"becomes a row: noAnswer 1"),
        ({"layers": {"ids": [9]}}, "9 is out of range"),
        ({"output": {"path": "/dev/null/store"}}, "cannot write to"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_sentence(
    job: ExtractJob, fields: dict[str, Any], sentence: str
) -> None:
    job.add(2, 2)
    job.fields |= fields

    with pytest.raises(JobRefusedError, match=sentence):
        job.plan()


def leave_a_record_out(job: ExtractJob) -> None:
    job.records.pop(0)


def take_fewer_rows(job: ExtractJob) -> None:
    job.fields["maxRows"] = 5


def filter_a_status_out(job: ExtractJob) -> None:
    job.records[0]["status"] = "truncated"
    job.fields["rowFilter"] = ["ok"]


@pytest.mark.parametrize("seal", [True, False], ids=["sealed", "in an open shard"])
@pytest.mark.parametrize("select_less", [leave_a_record_out, take_fewer_rows, filter_a_status_out])
def test_a_folder_with_rows_that_the_run_does_not_select_is_refused(
    job: ExtractJob, select_less: Callable[[ExtractJob], None], seal: bool
) -> None:
    job.add_many(6)
    job.run |= {"namespace": "team", "name": "first"}
    fill(job, seal=seal)
    select_less(job)

    with pytest.raises(
        JobRefusedError,
        match=r"not among those that this run selects, 1 in all, such as A/[0-9a-f]{32}; the last to write "
        r"there was run team/first; choose another output\.path",
    ) as refused:
        job.plan()

    assert refused.value.reason == "StoreDiffers"


def test_a_plan_that_is_refused_leaves_the_store_of_the_other_run_whole(job: ExtractJob) -> None:
    job.add_many(6)
    fill(job)
    job.finish()
    leave_a_record_out(job)

    with pytest.raises(JobRefusedError):
        job.plan()

    assert (job.output / "manifest.json").exists()
    assert audit_store(job.output).faults == []


@pytest.mark.parametrize("seal", [True, False], ids=["sealed", "in an open shard"])
def test_a_folder_that_has_a_row_for_other_tokens_is_refused(job: ExtractJob, seal: bool) -> None:
    job.add_many(6)
    fill(job, seal=seal)
    record = job.records[2]
    record["output_ids"][0] = record["output_ids"][0] % 900 + 20

    with pytest.raises(JobRefusedError, match=f"row A/{record['id']} for other tokens than its record has"):
        job.plan()


def test_rows_that_are_there_already_are_the_runs_own_though_its_input_grew(job: ExtractJob) -> None:
    job.add_many(6)
    fill(job)
    job.add_many(3)
    job.records.reverse()

    assert job.plan().rows == 9


def test_a_row_that_a_crash_has_cut_is_not_taken_for_one_of_other_tokens(job: ExtractJob) -> None:
    job.add_many(6)
    fill(job, seal=False)
    (blocks,) = job.output.glob("*.partial")
    blocks.write_bytes(blocks.read_bytes()[:-10])

    assert job.plan().rows == 6


def test_a_store_of_other_layers_is_refused_with_both(job: ExtractJob) -> None:
    job.add_many(3)
    fill(job)
    job.fields["layers"] = {"ids": [1, 3]}

    with pytest.raises(JobRefusedError, match=r"another layerIds: \[1, 2, 8\] there, \[1, 3, 8\] now"):
        job.plan()


@pytest.mark.parametrize("kept", [0.5, 0.99], ids=["half", "but for its end"])
def test_a_shard_that_was_cut_is_refused_with_what_to_do(job: ExtractJob, kept: float) -> None:
    job.add_many(6)
    fill(job)
    (shard,) = job.output.glob("*.safetensors")
    content = shard.read_bytes()
    shard.write_bytes(content[: int(len(content) * kept)])

    with pytest.raises(JobRefusedError, match=rf"its header names {len(content)}; .*or remove it") as refused:
        job.plan()

    assert refused.value.reason == "StoreCorrupt"
    assert shard.name in refused.value.message
    shard.unlink()
    assert job.plan().rows == 6


def test_a_backend_that_computes_itself_is_refused_where_there_is_no_torch(job: ExtractJob) -> None:
    job.add(2, 2)
    job.fields["backend"] = "Transformers"

    with pytest.raises(JobRefusedError, match=r"needs torch, which is not.*images\.trainer") as refused:
        job.plan()
    assert refused.value.reason == "TorchMissing"
    assert not job.output.exists()
