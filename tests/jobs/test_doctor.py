"""The doctor finds the stage that is wrong, and nothing where nothing is."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from draftmill_cli.main import main
from draftmill_jobs.doctor.evidence import Patient
from draftmill_jobs.doctor.examining import CHECKS, examine
from draftmill_jobs.doctor.verdict import Finding, Outcome, Stage, Verdict, wrong_stage
from tests.support.toy_drafter import DRAFT_VOCABULARY, ToyDrafter, train_toy_drafter
from tests.support.toy_target import FOLDER, LAYER_IDS, ToyRows, toy_model, toy_rows, write_toy_store
from tests.support.train_job import flip_a_byte

ROWS = 48


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> ToyDrafter:
    return train_toy_drafter(tmp_path_factory.mktemp("drafter"), epochs=5)


@pytest.fixture
def drafter(trained: ToyDrafter, tmp_path: Path) -> ToyDrafter:
    return trained.copy(tmp_path / "drafter")


def verdicts(store: Path, drafter: ToyDrafter, target: Path | None = FOLDER) -> dict[str, Verdict]:
    return {verdict.check: verdict for verdict in examine(Patient(store, drafter.folder, target, ROWS))}


def stage(found: dict[str, Verdict]) -> Stage | None:
    return wrong_stage(list(found.values()))


def fresh_rows() -> ToyRows:
    """Rows that the drafter was not trained on."""
    return toy_rows(ROWS, seed=5)


def test_a_healthy_drafter_has_no_stage_that_is_wrong(trained: ToyDrafter, tmp_path: Path) -> None:
    found = verdicts(write_toy_store(tmp_path / "store", fresh_rows()), trained)

    assert stage(found) is None
    assert {check for check, verdict in found.items() if verdict.finding.outcome is not Outcome.FINE} == {
        "files of the store"  # it has no manifest
    }
    assert "simulated acceptance length" in found["drafting"].finding.message


def permuted(rows: ToyRows) -> ToyRows:
    return rows.permuted()


def of_the_layers_before(rows: ToyRows) -> ToyRows:
    before = toy_rows(ROWS, seed=5, layer_ids=tuple(layer - 1 for layer in LAYER_IDS))
    return rows.with_states(before.states)


def after_the_final_norm(rows: ToyRows) -> ToyRows:
    norm = toy_model().model.norm
    with torch.no_grad():
        states = [torch.cat([each[:, :-1], norm(each[:, -1:])], 1) for each in rows.states]
    return rows.with_states(states)


@pytest.mark.parametrize(
    ("broken", "check", "words"),
    [
        (permuted, "teacher self-check", "the states are not those of the tokens"),
        (of_the_layers_before, "layers of the states", "those stored as 2 fit 1"),
        (after_the_final_norm, "last state before the final norm", "have been through the final norm"),
    ],
)
def test_states_of_something_else_are_a_fault_of_the_extraction(
    trained: ToyDrafter, tmp_path: Path, broken: Callable[[ToyRows], ToyRows], check: str, words: str
) -> None:
    found = verdicts(write_toy_store(tmp_path / "store", broken(fresh_rows())), trained)

    assert stage(found) is Stage.EXTRACTION
    assert found[check].finding.outcome is Outcome.WRONG
    assert words in found[check].finding.message


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0])
def test_states_that_are_no_numbers_or_zero_are_a_fault_of_the_extraction(
    trained: ToyDrafter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: float
) -> None:
    """A store refuses them when they are written: this one comes from something that did not look."""
    for check in ("_check_finite", "_check_nonzero"):
        monkeypatch.setattr(f"draftmill_jobs.store.checks.{check}", lambda *_: None)
    rows = fresh_rows()
    states = [each.clone() for each in rows.states]
    states[7][3, 1] = value
    found = verdicts(write_toy_store(tmp_path / "store", rows.with_states(states)), trained)

    assert stage(found) is Stage.EXTRACTION
    said = found["numbers of the states"].finding
    assert said.outcome is Outcome.WRONG
    assert ("0 have NaN or infinite values and 1 are" if value == 0 else "1 have NaN") in said.message


def test_a_row_that_has_changed_on_disk_is_a_fault_of_the_store(trained: ToyDrafter, tmp_path: Path) -> None:
    store = write_toy_store(tmp_path / "store", fresh_rows())
    (shard,) = store.glob("*.safetensors")
    flip_a_byte(shard, shard.stat().st_size // 2)
    found = verdicts(store, trained)

    assert stage(found) is Stage.STORE
    assert f"1 of {ROWS} rows have changed" in found["files of the store"].finding.message


def test_a_store_without_a_whole_row_is_a_fault_of_the_store(trained: ToyDrafter, tmp_path: Path) -> None:
    store = write_toy_store(tmp_path / "store", fresh_rows())
    (shard,) = store.glob("*.safetensors")
    content = shard.read_bytes()
    begin = 8 + int.from_bytes(content[:8], "little")
    shard.write_bytes(content[:begin] + bytes(byte ^ 1 for byte in content[begin:]))
    found = verdicts(store, trained)

    assert stage(found) is Stage.STORE
    assert f"{ROWS} of {ROWS} rows have changed" in found["files of the store"].finding.message
    assert found["loss mask"].finding.outcome is Outcome.NOT_LOOKED_AT


def test_a_mask_over_the_prompts_is_a_fault_of_the_mask(trained: ToyDrafter, tmp_path: Path) -> None:
    rows = fresh_rows()
    found = verdicts(
        write_toy_store(tmp_path / "store", rows, mask_from=[prompt - 3 for prompt in rows.prompts]), trained
    )

    assert stage(found) is Stage.MASK
    assert f"{3 * ROWS} tokens of prompts are" in found["loss mask"].finding.message


def test_another_target_is_named(trained: ToyDrafter, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for path in FOLDER.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 0.5}))
    found = verdicts(write_toy_store(tmp_path / "store", fresh_rows()), trained, other)

    assert stage(found) is Stage.TARGET


def test_another_target_is_named_though_it_cannot_be_read(trained: ToyDrafter, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text((FOLDER / "config.json").read_text())
    found = verdicts(write_toy_store(tmp_path / "store", fresh_rows()), trained, other)

    assert stage(found) is Stage.TARGET
    assert "which cannot be read" in found["target of the store"].finding.message


def test_a_folder_without_a_model_is_no_target(trained: ToyDrafter, tmp_path: Path) -> None:
    found = verdicts(write_toy_store(tmp_path / "store", fresh_rows()), trained, tmp_path)

    assert found["target of the store"].finding.outcome is Outcome.NOT_LOOKED_AT
    assert "config.json is missing" in found["target of the store"].finding.message


def test_a_drafter_of_two_states_does_not_fit_a_store_of_three(drafter: ToyDrafter, tmp_path: Path) -> None:
    drafter.set_config(
        eagle_config={"eagle_aux_hidden_state_layer_ids": [1, 2], "use_aux_hidden_state": True},
        num_aux_hidden_states=2,
    )
    drafter.set_tensors(**{"fc.weight": torch.zeros(64, 2 * 64, dtype=torch.bfloat16)})
    found = verdicts(write_toy_store(tmp_path / "store", fresh_rows()), drafter)

    assert stage(found) is Stage.TARGET
    assert "number of states 2 and 3" in found["drafter beside target and store"].finding.message


def test_layer_ids_that_no_engine_reads_rightly_are_a_fault_of_the_export(
    drafter: ToyDrafter, tmp_path: Path
) -> None:
    drafter.set_config(
        eagle_config={"eagle_aux_hidden_state_layer_ids": [2, 3, 4], "use_aux_hidden_state": True}
    )
    found = verdicts(write_toy_store(tmp_path / "store", fresh_rows()), drafter)

    assert stage(found) is Stage.EXPORT
    assert "no engine would give it those" in found["layer ids of the drafter"].finding.message


def test_layer_ids_left_to_the_engine_are_a_fault_of_the_export_where_it_takes_others(
    drafter: ToyDrafter, tmp_path: Path
) -> None:
    drafter.set_config(eagle_config=None)
    found = verdicts(write_toy_store(tmp_path / "store", fresh_rows()), drafter)

    assert stage(found) is Stage.EXPORT
    assert (
        "its config names none: engines take [2, 2, 1]" in found["layer ids of the drafter"].finding.message
    )


def test_ids_that_are_not_those_of_the_training_are_found_by_what_is_drafted_from_the_layers_beside_them(
    tmp_path: Path,
) -> None:
    before = tuple(layer - 1 for layer in LAYER_IDS)
    drafter = train_toy_drafter(tmp_path / "drafter", layer_ids=before, epochs=3)
    drafter.set_config(
        eagle_config={"eagle_aux_hidden_state_layer_ids": list(LAYER_IDS), "use_aux_hidden_state": True}
    )
    found = verdicts(write_toy_store(tmp_path / "store", fresh_rows()), drafter)

    assert stage(found) is Stage.EXPORT
    assert found["layer ids of the drafter"].finding.outcome is Outcome.FINE
    said = found["layers by what is drafted"].finding.message
    assert "from [0, 1, 2]: its layer ids are not those of its training" in said


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"fc.weight": torch.full((64, 3 * 64), math.nan)}, "NaN or infinite values in fc.weight"),
        ({"fc.weight": torch.zeros(64, 64)}, "shape of fc.weight"),
        ({"midlayer.self_attn.sinks": torch.zeros(4)}, "beyond a drafter's: midlayer.self_attn.sinks"),
    ],
    ids=["no numbers", "another shape", "one too many"],
)
def test_weights_that_are_not_a_drafters_are_a_fault_of_the_export(
    drafter: ToyDrafter, tmp_path: Path, change: dict[str, torch.Tensor], words: str
) -> None:
    drafter.set_tensors(**change)
    found = verdicts(write_toy_store(tmp_path / "store", fresh_rows()), drafter)

    assert stage(found) is Stage.EXPORT
    assert words in found["files of the drafter"].finding.message


def test_a_folder_for_sglang_is_right_too_and_says_so(drafter: ToyDrafter, tmp_path: Path) -> None:
    drafter.set_config(
        eagle_config={"eagle_aux_hidden_state_layer_ids": [0, 1, 2], "use_aux_hidden_state": True}
    )
    found = verdicts(write_toy_store(tmp_path / "store", fresh_rows()), drafter)

    assert stage(found) is None
    said = found["layer ids of the drafter"].finding.message
    assert "is read by sglang as [1, 2, 3]" in said
    assert "vllm would take other layers" in said


def test_a_map_that_was_made_for_other_data_is_a_fault_of_the_vocabulary(
    drafter: ToyDrafter, tmp_path: Path
) -> None:
    rows, few = fresh_rows(), 12
    said = np.concatenate([rows.answer(row) for row in range(ROWS)])
    ids = np.sort(np.argsort(np.bincount(said, minlength=64), kind="stable")[:few])
    inside = np.zeros(64, np.bool_)
    inside[ids] = True
    drafter.set_config(draft_vocab_size=few)
    drafter.set_tensors(
        d2t=torch.from_numpy(ids - np.arange(few)),
        t2d=torch.from_numpy(inside),
        **{"lm_head.weight": torch.zeros(few, 64, dtype=torch.bfloat16)},
    )
    found = verdicts(write_toy_store(tmp_path / "store", rows), drafter)

    assert stage(found) is Stage.VOCABULARY
    assert "it was made for other data" in found["draft vocabulary"].finding.message


def test_a_map_of_zeros_is_a_fault_of_the_vocabulary(drafter: ToyDrafter, tmp_path: Path) -> None:
    drafter.set_tensors(d2t=torch.zeros(DRAFT_VOCABULARY, dtype=torch.int64))
    found = verdicts(write_toy_store(tmp_path / "store", fresh_rows()), drafter)

    assert stage(found) is Stage.VOCABULARY
    assert "d2t and t2d name different tokens" in found["draft vocabulary"].finding.message


def test_a_map_that_fits_itself_and_not_the_weights_is_found_by_what_is_drafted(
    drafter: ToyDrafter, tmp_path: Path
) -> None:
    ids = np.r_[0:1, 4 : 3 + DRAFT_VOCABULARY]  # all move by one: the last of them cannot be said any more
    inside = np.zeros(64, np.bool_)
    inside[ids] = True
    drafter.set_tensors(d2t=torch.from_numpy(ids - np.arange(DRAFT_VOCABULARY)), t2d=torch.from_numpy(inside))
    found = verdicts(write_toy_store(tmp_path / "store", fresh_rows()), drafter)

    assert stage(found) is Stage.VOCABULARY
    assert "d2t is not that of the training" in found["d2t by what is drafted"].finding.message


def test_feedback_that_is_not_that_of_the_training_is_a_fault_of_the_export(
    drafter: ToyDrafter, tmp_path: Path
) -> None:
    drafter.set_config(norm_output=True)
    found = verdicts(write_toy_store(tmp_path / "store", fresh_rows()), drafter)

    assert stage(found) is Stage.EXPORT
    assert "norm_output is not that of the training" in found["feedback between steps"].finding.message


def test_a_drafter_that_has_learned_nothing_is_a_fault_of_the_training(
    drafter: ToyDrafter, tmp_path: Path
) -> None:
    made = torch.Generator().manual_seed(0)
    drafter.set_tensors(**{"fc.weight": torch.randn(64, 3 * 64, generator=made).bfloat16()})
    found = verdicts(write_toy_store(tmp_path / "store", fresh_rows()), drafter)

    assert stage(found) is Stage.TRAINING


def test_without_the_target_it_says_what_it_could_not_look_at(trained: ToyDrafter, tmp_path: Path) -> None:
    found = verdicts(write_toy_store(tmp_path / "store", fresh_rows()), trained, None)

    assert stage(found) is None
    assert found["teacher self-check"].finding.outcome is Outcome.NOT_LOOKED_AT
    assert found["loss mask"].finding.outcome is Outcome.FINE


def test_the_first_stage_that_is_wrong_is_the_one() -> None:
    fine, wrong = Finding(Outcome.FINE, ""), Finding(Outcome.WRONG, "")
    one = Verdict("a", Stage.EXTRACTION, wrong)

    assert wrong_stage([replace(one, finding=fine), replace(one, stage=Stage.EXPORT), one]) is Stage.EXPORT


def test_the_command_ends_with_the_stage_and_an_exit_code(
    drafter: ToyDrafter, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Reported failure 38 (SpecForge#310, EAGLE#276): nothing was accepted, and nobody could tell why."""
    store = write_toy_store(tmp_path / "store", fresh_rows())
    arguments = ["doctor", "--store", str(store), "--drafter", str(drafter.folder), "--target", str(FOLDER)]
    assert main([*arguments, "--rows", str(ROWS)]) == 0
    drafter.set_config(norm_output=True)
    assert main([*arguments, "--rows", str(ROWS)]) == 1
    said = capsys.readouterr().out.splitlines()

    assert "No stage is wrong." in said
    assert said[-1] == "The stage that is wrong: export."


def test_the_page_names_every_check_in_its_order() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "train-without-kubernetes.md").read_text()
    _, _, after = page.partition("| check | what it finds |")
    table, _, _ = after.partition("\n\n")

    assert re.findall(r"^\| (\w[^|]+) \|", table, re.MULTILINE) == [check.name for check in CHECKS]


@pytest.mark.parametrize("rows", ["0", "-3", "many"])
def test_there_are_rows_to_look_at(rows: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["doctor", "--store", str(tmp_path), "--drafter", str(tmp_path), "--rows", rows])
    assert f"{rows} is not a number from 1 on" in capsys.readouterr().err


@pytest.mark.parametrize("argument", ["--store", "--drafter", "--target"])
def test_a_folder_that_is_not_there_is_no_fault_of_a_stage(
    argument: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = dict.fromkeys(("--store", "--drafter", "--target"), str(tmp_path)) | {argument: "nowhere"}
    with pytest.raises(SystemExit) as ended:
        main(["doctor", *(word for pair in folders.items() for word in pair)])

    assert ended.value.code == 2
    assert f"argument {argument}: there is no folder nowhere" in capsys.readouterr().err


def test_the_folder_of_two_engines_is_told_which_ones_are_in_it(
    trained: ToyDrafter, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = trained.folder.parent
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--store", str(tmp_path), "--drafter", str(both)])

    assert ended.value.code == 2
    assert f"name {both / 'sglang'} or {both / 'vllm'}" in capsys.readouterr().err
