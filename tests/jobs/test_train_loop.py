"""Whole trainings, small ones: learning, stopping, dying, going on, several processes, broken rows."""

from __future__ import annotations

import json
import logging
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from draftmill_api.v1alpha1.trainstatus import Yardstick
from draftmill_jobs.errors import JobFailedError, JobRefusedError
from draftmill_jobs.train.folders import DRAFTER
from draftmill_jobs.train.loop import StepReport
from draftmill_jobs.train.packing import is_held_out
from draftmill_jobs.train.tensors import TensorFolder
from draftmill_jobs.train.vocabulary import DraftVocabulary
from tests.support.ports import free_port
from tests.support.training import SHAPE, Case, Rows, start, write_target

KILLS = (3, 9, 14, 20, 27)


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_a_drafter_learns_and_the_best_one_is_exported_with_its_map(tmp_path: Path) -> None:
    reports: list[StepReport] = []
    case = Case(tmp_path, training={"epochs": 6})
    outcome = case.run(report=reports.append)
    evaluations = [report.evaluation for report in reports if report.evaluation]

    assert outcome.finished
    assert reports[-1].losses[0] < reports[0].losses[0] / 2
    assert len(evaluations) == 6
    assert {evaluation.yardstick for evaluation in evaluations} == {Yardstick.ACCEPTANCE_LENGTH}
    assert outcome.state.best is not None
    assert outcome.state.best.length == max(evaluation.figure for evaluation in evaluations) > 2
    config = json.loads((tmp_path / "output" / DRAFTER / "vllm" / "config.json").read_text())
    assert config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [2, 4, 5]


def test_sampled_rows_are_measured_by_the_teacher_and_called_so(tmp_path: Path) -> None:
    reports: list[StepReport] = []
    Case(tmp_path, Rows(greedy=False), {"epochs": 1}).run(report=reports.append)

    assert reports[-1].evaluation
    assert reports[-1].evaluation.yardstick is Yardstick.TEACHER_AGREEMENT


def test_a_training_that_is_stopped_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    whole, parted = Case(tmp_path, output="whole"), Case(tmp_path, output="parted")
    whole.run()
    asked = iter([False] * 4 + [True])
    first = parted.run(should_stop=lambda: next(asked))
    rest: list[StepReport] = []
    second = parted.run(report=rest.append)

    assert (first.finished, first.state.step) == (False, 4)
    assert (second.finished, rest[0].step) == (True, 5)
    assert same(whole.weights(), parted.weights())


def test_a_training_that_is_stopped_before_its_first_step_starts_again(tmp_path: Path) -> None:
    case = Case(tmp_path, training={"epochs": 1})
    stopped = case.run(should_stop=lambda: True)

    assert (stopped.finished, stopped.state.step) == (False, 0)
    assert case.run().finished


def test_a_target_that_cannot_be_used_is_a_refusal_in_words(tmp_path: Path) -> None:
    write_target(tmp_path / "target", model_type="gemma2")

    with pytest.raises(JobRefusedError, match="'gemma2' is not known to be a plain RMSNorm"):
        Case(tmp_path).run()


def test_states_that_an_engine_cannot_be_told_of_are_refused_before_training(tmp_path: Path) -> None:
    write_target(tmp_path / "target", model_type="deepseek_v3")
    shape = replace(SHAPE, layer_ids=(1, 4, 5))

    with pytest.raises(JobRefusedError, match="SGLang takes a first layer id 1 as 2"):
        Case(tmp_path).run(shape=shape)


def test_a_training_killed_between_any_two_files_ends_with_the_same_weights(tmp_path: Path) -> None:
    """Reported failure 30 (speculators#739, SpecForge#659): killed while it saved, it had no checkpoint."""
    whole, killed = Case(tmp_path, output="whole"), Case(tmp_path, output="killed")
    whole.config()
    undisturbed = start(whole)
    for kill_at in KILLS:
        process = start(killed, kill_at=kill_at)
        process.join()
        assert process.exitcode == -signal.SIGKILL
    last = start(killed)
    last.join()
    undisturbed.join()

    assert (last.exitcode, undisturbed.exitcode) == (0, 0)
    assert same(whole.weights(), killed.weights())


def test_two_processes_do_the_steps_of_one(tmp_path: Path) -> None:
    one, two = Case(tmp_path, output="one"), Case(tmp_path, output="two")
    one.config()
    port = free_port()
    processes = [start(one), *(start(two, rank=rank, ranks=2, port=port) for rank in range(2))]
    for process in processes:
        process.join()

    assert [process.exitcode for process in processes] == [0, 0, 0]
    alone, together = one.weights(), two.weights()
    assert all(torch.allclose(alone[name], together[name], atol=1e-4) for name in alone)


def test_checkpoints_of_another_training_are_refused(tmp_path: Path) -> None:
    Case(tmp_path, training={"epochs": 1}).run()

    with pytest.raises(JobRefusedError, match="of other rows or states, settings"):
        Case(tmp_path, training={"epochs": 1, "seed": 1}).run()


def test_checkpoints_of_other_states_under_the_same_names_are_refused(tmp_path: Path) -> None:
    """As when a store was made anew: other layers, or another precision."""
    Case(tmp_path, training={"epochs": 1}).run()

    with pytest.raises(JobRefusedError, match="of other rows or states, settings"):
        Case(tmp_path, Rows(version="second"), {"epochs": 1}).run()
    with pytest.raises(JobRefusedError, match="of other rows or states, settings"):
        Case(tmp_path, training={"epochs": 1}).run(shape=replace(SHAPE, layer_ids=(1, 3, 4)))


def test_checkpoints_of_another_drafter_to_start_from_are_refused(tmp_path: Path) -> None:
    start = Case(tmp_path, training={"epochs": 1}, output="start")
    start.run()
    warm = Case(
        tmp_path, training={"epochs": 1}, output="warm", init=str(tmp_path / "start" / DRAFTER / "vllm")
    )
    warm.run()
    weights = tmp_path / "start" / DRAFTER / "vllm" / "model.safetensors"
    save_file(
        {name: 2 * x if x.is_floating_point() else x for name, x in load_file(weights).items()}, weights
    )

    with pytest.raises(JobRefusedError, match="of other rows or states, settings"):
        warm.run()


def test_a_checkpoint_of_before_origins_were_kept_is_gone_on_from(tmp_path: Path) -> None:
    Case(tmp_path, training={"epochs": 1}).run()
    for state in (tmp_path / "output" / "checkpoints").glob("*/state.json"):
        kept = {name: value for name, value in json.loads(state.read_text()).items() if name != "origin"}
        state.write_text(json.dumps(kept))

    assert Case(tmp_path, Rows(version="second"), {"epochs": 1}).run().finished


def test_a_broken_row_that_was_held_out_is_counted_too(tmp_path: Path) -> None:
    rows = Rows(count=120)
    held_out = next(i for i, row in enumerate(rows.rows) if is_held_out(row.split_key, 20))
    outcome = Case(tmp_path, replace(rows, corrupt=frozenset({held_out})), {"heldOutPercent": 20}).run()

    assert (outcome.finished, outcome.state.corrupt) == (True, [held_out])


def test_more_than_one_broken_row_in_a_hundred_that_was_held_out_ends_it(tmp_path: Path) -> None:
    rows = Rows()
    held_out = frozenset(i for i, row in enumerate(rows.rows) if is_held_out(row.split_key, 20))

    with pytest.raises(JobFailedError, match="of 24 rows are not what was written"):
        Case(tmp_path, replace(rows, corrupt=held_out), {"heldOutPercent": 20}).run()


def test_a_broken_row_is_left_out_and_counted(tmp_path: Path) -> None:
    rows = Rows(count=120, corrupt=frozenset({17}))
    outcome = Case(tmp_path, rows, {"heldOutPercent": 0, "tokensPerBatch": 1024}).run()

    assert (outcome.finished, outcome.state.corrupt) == (True, [17])


def test_more_than_one_broken_row_in_a_hundred_ends_it(tmp_path: Path) -> None:
    rows = Rows(corrupt=frozenset({2, 3}))

    with pytest.raises(JobFailedError, match=r"of 24 rows are not what was written: d/[23]"):
        Case(tmp_path, rows, {"heldOutPercent": 0}).run()


def test_a_loss_that_is_no_number_ends_it(tmp_path: Path) -> None:
    with pytest.raises(JobFailedError, match="lower the learning rate"):
        Case(tmp_path, training={"learningRate": 1e30, "warmupSteps": 0, "schedule": "Constant"}).run()


def test_bfloat16_products_lose_about_as_much(tmp_path: Path) -> None:
    losses = []
    for precision in ("Float32", "BFloat16"):
        reports: list[StepReport] = []
        Case(tmp_path, training={"precision": precision, "epochs": 1}, output=precision).run(
            report=reports.append
        )
        losses.append([report.losses[0] for report in reports])

    assert losses[1] == pytest.approx(losses[0], rel=0.05)


def test_a_warm_start_keeps_its_map_whatever_the_data_say_and_warns_of_what_it_cannot_say(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Reported failure 12 (SpecForge#534): the map was chosen anew, and lm_head meant other tokens."""
    first = Case(
        tmp_path,
        Rows(count=2, step=0),
        {"epochs": 1, "heldOutPercent": 0},
        output="first",
        draft_vocabulary=30,
    )
    first.run()
    drafter = tmp_path / "first" / DRAFTER / "vllm"
    second = Case(tmp_path, Rows(), {"epochs": 1}, output="second", init=str(drafter))
    with caplog.at_level(logging.WARNING):
        outcome = second.run()
    before, after = (
        TensorFolder(tmp_path / name / DRAFTER / "vllm").read("d2t") for name in ("first", "second")
    )

    assert torch.equal(before, after)
    assert DraftVocabulary.from_offsets(after.numpy(), 50).target_ids.max() < 49
    assert outcome.coverage < 0.95
    assert "% of the answers' tokens only" in caplog.text


def test_rope_and_eps_of_a_warm_start_are_kept(tmp_path: Path) -> None:
    first = Case(tmp_path, training={"epochs": 1}, output="first")
    first.run()
    drafter = tmp_path / "first" / DRAFTER / "vllm"
    config = json.loads((drafter / "config.json").read_text())
    kept = {"rms_norm_eps": 1e-3, "rope_theta": 5e5, "max_position_embeddings": 777}
    del config["rope_parameters"]
    (drafter / "config.json").write_text(json.dumps({**config, **kept}))
    Case(tmp_path, training={"epochs": 1}, output="second", init=str(drafter)).run()
    exported = json.loads((tmp_path / "second" / DRAFTER / "vllm" / "config.json").read_text())

    assert {key: exported[key] for key in kept} == kept
    assert exported["rope_parameters"]["rope_theta"] == 5e5


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 4, 6]}},
            "may mean the stream before or after",
        ),
        (
            {"vocab_size": 40, "draft_vocab_size": 30},
            "strictly ascending ids|vocabulary is 40, where 50 is needed",
        ),
        ({"intermediate_size": 20}, "shape of midlayer.mlp.gate_proj.weight"),
        ({"draft_vocab_size": 20}, "d2t has 48 ids, draft_vocab_size is 20"),
        ({"architectures": ["Eagle3DeepseekV2ForCausalLM"]}, "MLA"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused_in_words(
    tmp_path: Path, change: dict[str, object], words: str
) -> None:
    Case(tmp_path, training={"epochs": 1}, output="first").run()
    drafter = tmp_path / "first" / DRAFTER / "vllm"
    config = json.loads((drafter / "config.json").read_text())
    (drafter / "config.json").write_text(json.dumps({**config, **change}))

    with pytest.raises(JobRefusedError, match=words):
        Case(tmp_path, output="second", init=str(drafter)).run()


def test_a_config_without_layer_ids_is_taken_with_the_stores(tmp_path: Path) -> None:
    Case(tmp_path, training={"epochs": 1}, output="first").run()
    drafter = tmp_path / "first" / DRAFTER / "vllm"
    config = json.loads((drafter / "config.json").read_text())
    del config["eagle_config"]
    (drafter / "config.json").write_text(json.dumps(config))
    Case(tmp_path, training={"epochs": 1}, output="second", init=str(drafter)).run()
    exported = json.loads((tmp_path / "second" / DRAFTER / "sglang" / "config.json").read_text())

    assert exported["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [1, 3, 4]
