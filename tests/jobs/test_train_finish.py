"""The second look at a drafter: every tensor again, a model card, a manifest of what it is made of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from draftmill_api.drafter import DrafterEvaluation, DrafterManifest, EvaluatedConcurrency
from draftmill_api.exitcode import ExitCode
from draftmill_api.progress import TerminationMessage
from draftmill_api.v1alpha1.trainstatus import Yardstick
from draftmill_jobs.errors import JobFailedError, JobRefusedError
from draftmill_jobs.evaluate.evaluating import EVALUATION_FILE
from draftmill_jobs.main import main
from draftmill_jobs.shared.artefacts import MANIFEST_FILE, write_json
from draftmill_jobs.shared.files import sha256_of
from draftmill_jobs.shared.termination import encode
from tests.support.train_job import TrainJob, flip_a_byte
from tests.support.training import Rows


@pytest.fixture
def job(tmp_path: Path) -> TrainJob:
    return trained(TrainJob(tmp_path / "job"))


def trained(job: TrainJob) -> TrainJob:
    assert main(["train", "--config", str(job.write())]) == ExitCode.DONE
    return job


def manifest_of(job: TrainJob) -> DrafterManifest:
    return DrafterManifest.model_validate_json((job.output / MANIFEST_FILE).read_bytes())


def test_the_manifest_names_store_settings_figures_and_every_file_by_its_hash(job: TrainJob) -> None:
    result = job.finish()
    manifest = manifest_of(job)

    assert result.manifest_sha256 == sha256_of(job.output / MANIFEST_FILE)
    assert manifest.source.sha256 == sha256_of(job.store / MANIFEST_FILE)
    assert (manifest.vllm, manifest.sglang) == ("drafter/vllm", "drafter/sglang")
    assert {file.path: file.sha256 for file in manifest.files} == {
        f"drafter/{engine}/{name}": sha256_of(job.output / "drafter" / engine / name)
        for engine in ("sglang", "vllm")
        for name in ("README.md", "config.json", "model.safetensors")
    }
    assert manifest.rows + manifest.held_out_rows == job.rows.count
    assert manifest.acceptance is not None
    assert manifest.acceptance.yardstick is Yardstick.ACCEPTANCE_LENGTH
    assert result.acceptance_length == f"{manifest.acceptance.length:.2f}"
    assert result.progress.step == result.progress.total >= result.steps == manifest.steps


def test_every_setting_in_force_is_in_the_manifest_also_those_that_follow_from_the_start(
    tmp_path: Path,
) -> None:
    job = TrainJob(tmp_path / "job")
    job.training = {"learningRate": None, "tttLength": None}
    trained(job).finish()
    training = manifest_of(job).training

    assert (training.learning_rate, training.ttt_length, training.ttt_decay) == ("0.0001", 7, "0.8")


def test_sampled_rows_give_no_acceptance_length_anywhere(tmp_path: Path) -> None:
    job = trained(TrainJob(tmp_path / "job", Rows(greedy=False)))
    result = job.finish()
    card = (job.output / "drafter" / "vllm" / "README.md").read_text()

    assert (result.acceptance_length, result.progress.acceptance_length) == ("", "")
    assert float(result.teacher_agreement) >= 1
    assert "it is no acceptance\nlength" in card
    assert "Simulated acceptance length" not in card


def test_the_card_says_how_each_engine_is_told_to_draft_as_far_as_was_trained(job: TrainJob) -> None:
    job.finish()
    card = (job.output / "drafter" / "sglang" / "README.md").read_text()

    assert '"num_speculative_tokens": 3' in card
    assert (
        "--speculative-num-steps 3 \\\n        --speculative-eagle-topk 1 --speculative-num-draft-tokens 4\n"
        in card
    )


def evaluated(job: TrainJob, **fields: object) -> None:
    """As `draftmill evaluate` leaves it."""
    endpoint = {"url": "http://127.0.0.1:8000", "engine": "VLLM"}
    job.fields["evaluation"] = {name: {"name": name, **endpoint} for name in ("plain", "drafting")}
    found = DrafterEvaluation(
        run=job.config.run,
        drafter_sha256=sha256_of(job.output / "drafter" / "vllm" / "model.safetensors"),
        max_tokens=64,
        measured=[
            EvaluatedConcurrency(
                concurrency=concurrency,
                prompts=3,
                tokens=120,
                cycles=40,
                acceptance_length=3.0,
                by_position=[0.9, 0.7, 0.4],
                plain_tokens_per_second=40.0,
                drafting_tokens_per_second=20.0 * (2 + concurrency),
                ratio=1 + concurrency / 2,
                identical=3,
            )
            for concurrency in (1, 2)
        ],
    )
    write_json(job.output / EVALUATION_FILE, found.model_copy(update=fields))


def test_what_servers_made_of_the_drafter_is_in_manifest_card_and_last_words(job: TrainJob) -> None:
    evaluated(job)
    result = job.finish()
    card = (job.output / "drafter" / "vllm" / "README.md").read_text()

    assert result.evaluation is not None
    assert (result.evaluation.acceptance_length, result.evaluation.ratio) == ("3.00", "2.00")
    assert (result.evaluation.cycles, result.evaluation.identical) == (80, 6)
    found = manifest_of(job).evaluation
    assert found is not None
    assert [each.ratio for each in found.measured] == [1.5, 2.0]
    assert "| 2 | 3.00 | 90.0% 70.0% 40.0% | 40.0 | 80.0 | 2.00 | 3 of 3 |" in card


def test_an_evaluation_that_was_asked_for_is_not_left_out(job: TrainJob) -> None:
    evaluated(job)
    (job.output / EVALUATION_FILE).unlink()
    with pytest.raises(JobRefusedError, match="run `draftmill evaluate` first"):
        job.finish()


def test_the_evaluation_of_another_drafter_is_not_taken(job: TrainJob) -> None:
    evaluated(job, drafter_sha256="0" * 64)
    with pytest.raises(JobRefusedError, match="is of another drafter"):
        job.finish()


def test_the_last_words_fit_however_long_the_paths_are(job: TrainJob) -> None:
    evaluated(job)
    result = job.finish().model_copy(update=dict.fromkeys(("vllm", "sglang", "manifest"), "p" * 512))

    assert len(encode(TerminationMessage(train_finish=result))) < 4000


def test_finishing_twice_changes_nothing(job: TrainJob) -> None:
    assert job.finish() == job.finish()


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_one_changed_byte_of_the_weights_is_found(job: TrainJob, engine: str) -> None:
    flip_a_byte(job.output / "drafter" / engine / "model.safetensors", -1000)

    with pytest.raises(JobFailedError, match="is not what was trained; the disk may be broken"):
        job.finish()


def test_layer_ids_that_another_hand_wrote_are_found(job: TrainJob) -> None:
    path = job.output / "drafter" / "vllm" / "config.json"
    config = json.loads(path.read_text())
    config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = [1, 3, 4]
    path.write_text(json.dumps(config))

    with pytest.raises(JobFailedError, match="vllm: the config is not what was trained"):
        job.finish()


def test_a_drafter_that_is_gone_is_no_success(job: TrainJob) -> None:
    (job.output / "drafter" / "vllm" / "config.json").unlink()

    with pytest.raises(JobFailedError, match=r"config.json cannot be read"):
        job.finish()


def test_a_training_that_is_not_done_is_not_finished(tmp_path: Path) -> None:
    job = TrainJob(tmp_path / "job")
    with pytest.raises(JobRefusedError, match="nothing was trained there"):
        job.finish()
    trained(job)
    job.training["epochs"] = 3
    with pytest.raises(JobRefusedError, match="of other rows or states, settings"):
        job.finish()


def test_ids_that_the_config_gives_are_what_the_engine_is_told(tmp_path: Path) -> None:
    job = TrainJob(tmp_path / "job")
    job.fields["export"] = {"layerIds": {"sglang": [2, 4, 5]}}
    trained(job).finish()
    config = json.loads((job.output / "drafter" / "config.json").read_text())

    assert manifest_of(job).vllm == manifest_of(job).sglang == "drafter"
    assert config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [2, 4, 5]


def test_a_warm_start_is_named_with_the_hashes_of_its_files(job: TrainJob, tmp_path: Path) -> None:
    drafter = job.output / "drafter" / "vllm"
    second = TrainJob(tmp_path / "second", start={"init": {"path": str(drafter)}})
    trained(second).finish()
    init = manifest_of(second).init

    assert init is not None
    assert {file.path: file.sha256 for file in init.files} == {
        name: sha256_of(drafter / name) for name in ("config.json", "model.safetensors")
    }
