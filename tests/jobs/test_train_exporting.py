"""`draftmill export`: a drafter as speculators has it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from draftmill_cli.main import main
from draftmill_jobs.train.export import Trained, export_flat
from draftmill_jobs.train.layers import DraftEngine
from tests.support.drafting import make_bench, small_config
from tests.support.training import Case


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    case = Case(tmp_path_factory.mktemp("case"), training={"epochs": 1})
    case.run()
    return case


def arguments(case: Case, output: Path) -> list[str]:
    drafter, target = case.folder / case.output / "drafter" / "vllm", case.folder / "target"
    return [
        *("export", str(drafter), "--format", "speculators"),
        *("--target", str(target), "--output", str(output)),
    ]


def test_it_names_its_target_and_carries_the_embeddings(case: Case, tmp_path: Path) -> None:
    assert (
        main([*arguments(case, tmp_path / "new"), "--target-name", "org/target", "--draft-tokens", "3"]) == 0
    )
    config = json.loads((tmp_path / "new" / "config.json").read_text())
    tensors = load_file(tmp_path / "new" / "model.safetensors")
    before = load_file(case.folder / case.output / "drafter" / "vllm" / "model.safetensors")

    assert config["speculators_config"]["verifier"]["name_or_path"] == "org/target"
    assert config["speculators_config"]["proposal_methods"][0]["speculative_tokens"] == 3
    assert config["eagle_aux_hidden_state_layer_ids"] == [2, 4, 5]
    assert torch.equal(tensors["fc.weight"], before["fc.weight"])
    assert tensors["embed_tokens.weight"].shape == (50, 16)


def test_it_can_be_trained_further(case: Case, tmp_path: Path) -> None:
    main(arguments(case, tmp_path / "new"))
    again = Case(case.folder, training={"epochs": 1}, output="again", init=str(tmp_path / "new"))

    assert again.run().finished


def test_the_folder_for_sglang_whose_layers_are_counted_otherwise_is_refused(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = arguments(case, tmp_path / "new")
    command[1] = str(case.folder / case.output / "drafter" / "sglang")

    assert main(command) == 1
    assert "[1, 3, 4] count as SGLang does: name the drafter's folder for vLLM" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_drafter_of_two_states_is_refused_for_vllm_would_take_three(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = make_bench(small_config(states=2), dtype=torch.float32)
    ids = dict.fromkeys(DraftEngine, (2, 4))
    export_flat(Trained(bench.config, bench.vocabulary, bench.drafter.state_dict(), ids), tmp_path / "two")
    command = arguments(case, tmp_path / "new")
    command[1] = str(tmp_path / "two")

    assert main(command) == 1
    assert "takes 2 states, and vLLM reads 3" in capsys.readouterr().err


def test_a_folder_that_is_no_drafter_is_named(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = arguments(case, tmp_path / "new")
    command[1] = str(tmp_path)

    assert main(command) == 1
    assert "config.json cannot be read" in capsys.readouterr().err


def test_nothing_is_overwritten(case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("x")

    assert main(arguments(case, tmp_path)) == 1
    assert "is not empty" in capsys.readouterr().err
