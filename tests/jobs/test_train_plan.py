"""What is said, and refused, before any trainer takes a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from draftmill_api.v1alpha1.trainstatus import Yardstick
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.shared.artefacts import MANIFEST_FILE
from draftmill_jobs.shared.files import sha256_of
from tests.support.train_job import TrainJob
from tests.support.training import LAYERS, SHAPE, Case, Rows

SAMPLED = Rows(greedy=False)


@pytest.fixture
def job(tmp_path: Path) -> TrainJob:
    return TrainJob(tmp_path / "job")


def test_a_plan_says_what_will_be_trained_and_what_it_takes(job: TrainJob) -> None:
    plan = job.plan()
    training = [row for row in job.rows.rows if row.tokens]

    assert plan.rows + plan.held_out_rows == len(training)
    assert plan.held_out_rows > 0
    assert plan.yardstick is Yardstick.ACCEPTANCE_LENGTH
    assert (plan.layer_ids, plan.model.layers) == (list(SHAPE.layer_ids), LAYERS)
    assert plan.longest_row <= max(row.tokens for row in training)
    assert plan.steps >= 2 * plan.tokens // 64
    assert plan.draft_vocabulary_size == 48
    assert plan.bytes_needed > 12 * plan.parameters > 0
    assert plan.input_sha256 == sha256_of(job.store / MANIFEST_FILE)


def test_rows_longer_than_the_limit_are_counted_as_cut(job: TrainJob) -> None:
    job.training["maxRowTokens"] = 20
    plan = job.plan()

    assert plan.longest_row == 20
    assert plan.cut_rows == sum(row.tokens > 20 for row in job.rows.rows)


def test_sampled_answers_are_announced_as_measured_by_the_teacher(tmp_path: Path) -> None:
    assert TrainJob(tmp_path / "job", SAMPLED).plan().yardstick is Yardstick.TEACHER_AGREEMENT


def test_without_held_out_rows_nothing_is_announced(job: TrainJob) -> None:
    job.fields["heldOutPercent"] = 0

    assert job.plan().yardstick is None


def test_a_store_without_a_manifest_is_not_trained_on(job: TrainJob) -> None:
    (job.store / MANIFEST_FILE).unlink()

    with pytest.raises(JobRefusedError, match="its extraction has not been finished") as refused:
        job.plan()
    assert refused.value.reason == "InputIncomplete"


def test_a_store_that_was_made_anew_is_not_the_one_that_the_run_is_bound_to(job: TrainJob) -> None:
    job.fields["store"] = {"path": str(job.store), "manifestSHA256": "a" * 64}

    with pytest.raises(JobRefusedError, match="the run is bound to aaaa") as refused:
        job.plan()
    assert refused.value.reason == "InputChanged"


def test_a_target_that_the_states_are_not_of_is_refused_with_both_fingerprints(job: TrainJob) -> None:
    before = job.facts.fingerprint
    config = json.loads((job.target / "config.json").read_text())
    (job.target / "config.json").write_text(json.dumps({**config, "rope_theta": 5e5}))

    with pytest.raises(JobRefusedError, match=f"{job.facts.fingerprint}.*{before}") as refused:
        job.plan()
    assert refused.value.reason == "ModelMismatch"


@pytest.mark.parametrize(
    ("fields", "training", "sentence"),
    [
        ({"target": {"name": "tiny", "path": "/nowhere"}}, {}, "there is no model at /nowhere"),
        (
            {"store": {"path": "/nowhere"}},
            {},
            "/nowhere is no store, or its extraction has not been finished",
        ),
        ({"output": {"path": "/proc/drafter"}}, {}, "cannot write to /proc/drafter"),
        (
            {"export": {"layerIds": {"sglang": [1, 3]}}},
            {},
            r"export.layerIds.sglang has \[1, 3\], and the drafter takes the states of 3 layers",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(
    job: TrainJob, fields: dict[str, Any], training: dict[str, Any], sentence: str
) -> None:
    job.fields |= fields
    job.training |= training

    with pytest.raises(JobRefusedError, match=sentence):
        job.plan()


def test_rows_that_are_all_held_out_leave_nothing_to_train_on(tmp_path: Path) -> None:
    job = TrainJob(tmp_path / "job", Rows(count=1))
    job.fields["heldOutPercent"] = 99

    with pytest.raises(JobRefusedError, match="all 1 rows are held out"):
        job.plan()


def test_a_draft_vocabulary_larger_than_the_targets_is_refused(job: TrainJob) -> None:
    job.start = {"scratch": {"draftVocabSize": 51}}

    with pytest.raises(JobRefusedError, match="of 51 ids cannot come from a target's 50"):
        job.plan()


def test_a_checkpoint_that_was_trained_on_other_layers_is_refused(job: TrainJob, tmp_path: Path) -> None:
    job.start = {"init": {"path": str(trained_drafter(tmp_path / "earlier", [2, 4, 6]))}}

    with pytest.raises(JobRefusedError, match="may mean the stream before or after these layers"):
        job.plan()
    job.start["init"]["layerConvention"] = "EnteringLayer"
    with pytest.raises(JobRefusedError, match=r"layer ids .* is \(2, 4, 6\), where \(2, 4, 5\) is needed"):
        job.plan()


def test_a_checkpoint_is_looked_at_without_its_values_being_read(job: TrainJob, tmp_path: Path) -> None:
    job.start = {"init": {"path": str(trained_drafter(tmp_path / "earlier", [2, 4, 5]))}}

    assert job.plan().draft_vocabulary_size == 48


def trained_drafter(folder: Path, layer_ids: list[int]) -> Path:
    """A small drafter whose config says these layers."""
    Case(folder, training={"epochs": 1}).run()
    drafter = folder / "output" / "drafter" / "vllm"
    config = json.loads((drafter / "config.json").read_text())
    config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = layer_ids
    (drafter / "config.json").write_text(json.dumps(config))
    return drafter


def test_checkpoints_that_do_not_fit_on_the_volume_are_refused_with_both_figures(
    job: TrainJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1000}))

    with pytest.raises(JobRefusedError, match=r"need .* more, and .* has 1.00 kB free"):
        job.plan()


def evaluated(job: TrainJob, **fields: Any) -> None:
    servers = {
        name: {"name": name, "url": "http://127.0.0.1:8000", "engine": "VLLM"}
        for name in ("plain", "drafting")
    }
    job.fields["evaluation"] = {**servers, "maxTokens": 60, **fields}


def test_an_evaluation_that_nothing_is_held_out_for_is_refused_before_the_training(tmp_path: Path) -> None:
    job = TrainJob(tmp_path / "job", Rows(count=3))
    job.fields["heldOutPercent"] = 1
    evaluated(job)

    with pytest.raises(JobRefusedError, match="so there is no prompt to ask") as refused:
        job.plan()
    assert refused.value.reason == "NothingHeldOut"


def test_prompts_that_no_server_would_take_are_found_before_the_training(job: TrainJob) -> None:
    evaluated(job, contextLength=64)  # prompts have 4 tokens
    assert job.plan().held_out_rows > 0

    evaluated(job, contextLength=63)
    with pytest.raises(JobRefusedError, match="up to 60, which is more than 63") as refused:
        job.plan()
    assert refused.value.reason == "EvaluationImpossible"
