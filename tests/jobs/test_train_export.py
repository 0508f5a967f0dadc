"""What engines are given to load."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from draftmill_api.v1alpha1.draftertrain import WrittenLayerIds
from draftmill_jobs.errors import JobFailedError
from draftmill_jobs.train.draft_config import read_config
from draftmill_jobs.train.export import Trained, Verifier, export_flat, export_speculators, verify
from draftmill_jobs.train.layers import DraftEngine, layer_ids_for
from draftmill_jobs.train.rope import Rope
from draftmill_jobs.train.starting import read_weights
from draftmill_jobs.train.tensors import TensorFolder
from tests.support.drafting import make_bench, small_config

VERIFIER = Verifier("models/target", ("LlamaForCausalLM",), 4)
YARN = Rope(50_000.0, {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128})


def trained(*, deepseek: bool = False, **changes: object) -> Trained:
    bench = make_bench(small_config(**changes), dtype=torch.float32)
    states = (2, 4, 5)[: bench.config.states]
    ids = {engine: layer_ids_for(engine, states, target_is_deepseek=deepseek) for engine in DraftEngine}
    return Trained(bench.config, bench.vocabulary, bench.drafter.state_dict(), ids)


def test_a_kimi_drafter_is_one_folder_that_both_engines_read_rightly(tmp_path: Path) -> None:
    folders = export_flat(trained(deepseek=True), tmp_path / "drafter")
    config = json.loads((tmp_path / "drafter" / "config.json").read_text())

    assert set(folders.values()) == {tmp_path / "drafter"}
    assert config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [2, 4, 5]
    assert config["architectures"] == ["LlamaForCausalLMEagle3"]


def test_a_llama_drafter_is_two_folders_with_one_file_of_weights(tmp_path: Path) -> None:
    """Reported failure 1 (vllm-project/vllm#50170): ids were missing, and the engine took its defaults."""
    folders = export_flat(trained(), tmp_path / "drafter")
    configs = {engine: json.loads((folder / "config.json").read_text()) for engine, folder in folders.items()}
    ids = {engine: config.pop("eagle_config") for engine, config in configs.items()}
    weights = [folder / "model.safetensors" for folder in folders.values()]

    assert [each["eagle_aux_hidden_state_layer_ids"] for each in ids.values()] == [[2, 4, 5], [1, 3, 4]]
    assert configs[DraftEngine.VLLM] == configs[DraftEngine.SGLANG]
    assert weights[0].samefile(weights[1])


def test_the_map_is_in_the_export_and_means_strictly_ascending_ids_of_the_target(tmp_path: Path) -> None:
    """Reported failure 15 (NeMo Automodel#2447): d2t was not in the export, and nothing was accepted."""
    meant = trained(deepseek=True)
    export_flat(meant, tmp_path / "drafter")
    tensors = load_file(tmp_path / "drafter" / "model.safetensors")
    ids = torch.arange(len(tensors["d2t"])) + tensors["d2t"]

    assert (tensors["d2t"].dtype, tensors["t2d"].dtype) == (torch.int64, torch.bool)
    assert ids.tolist() == meant.vocabulary.target_ids.tolist()
    assert (ids.diff() > 0).all()
    assert ids[-1] < len(tensors["t2d"]) == 50
    assert tensors["t2d"].sum() == len(ids) == 20
    assert all(x.dtype is torch.bfloat16 for name, x in tensors.items() if name not in ("d2t", "t2d"))


def test_the_names_are_those_that_servers_know(tmp_path: Path) -> None:
    export_flat(trained(deepseek=True), tmp_path / "drafter")
    layer = [
        *(f"self_attn.{name}_proj" for name in "qkvo"),
        *(f"mlp.{name}_proj" for name in ("gate", "up", "down")),
        *("input_layernorm", "hidden_norm", "post_attention_layernorm"),
    ]

    assert load_file(tmp_path / "drafter" / "model.safetensors").keys() == {
        *("fc.weight", "norm.weight", "lm_head.weight", "d2t", "t2d"),
        *(f"midlayer.{name}.weight" for name in layer),
    }


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"rope": YARN},
        {"fc_norm": True, "norm_output": True},
        {"norm_before_fc": True},
        {"states": 2},
        {"target_hidden_size": 24},
        {"draft_vocab_size": 50},
        {"bos_token_id": 1, "eos_token_id": [2, 3]},
    ],
    ids=str,
)
def test_every_flag_of_the_config_comes_back_from_either_format(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    """Reported failure 10 (vllm-project/vllm#38111): norm_before_fc was not passed on."""
    meant = trained(deepseek=True, **changes)
    embeddings = torch.randn(50, 16)
    export_flat(meant, tmp_path / "flat")
    export_speculators(meant, VERIFIER, embeddings, tmp_path / "nested")
    configs = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("flat", "nested"))
    flat, nested = (read_config(config) for config in configs)

    assert flat.config == nested.config == meant.config
    assert flat.layer_ids == nested.layer_ids == tuple(meant.layer_ids[DraftEngine.VLLM])
    assert nested.layer_meaning is WrittenLayerIds.ENTERING_LAYER


def test_both_spellings_of_rope_are_written(tmp_path: Path) -> None:
    export_flat(trained(deepseek=True, rope=YARN), tmp_path / "drafter")
    config = json.loads((tmp_path / "drafter" / "config.json").read_text())

    assert (config["rope_theta"], config["rope_scaling"]["rope_type"]) == (50_000.0, "yarn")
    assert config["rope_parameters"] == {"rope_theta": 50_000.0, **config["rope_scaling"]}


def test_the_format_of_speculators_carries_embeddings_and_no_switch_that_one_server_ignores(
    tmp_path: Path,
) -> None:
    embeddings = torch.randn(50, 16)
    export_speculators(trained(), VERIFIER, embeddings, tmp_path / "drafter")
    config = json.loads((tmp_path / "drafter" / "config.json").read_text())
    tensors = load_file(tmp_path / "drafter" / "model.safetensors")

    assert torch.equal(tensors["embed_tokens.weight"], embeddings.bfloat16())
    assert "layers.0.self_attn.q_proj.weight" in tensors
    assert config["norm_before_residual"] is False
    assert config["speculators_config"]["verifier"]["name_or_path"] == "models/target"
    assert "model_type" not in config, "by its lack vLLM knows the format"
    assert config["speculators_config"]["proposal_methods"][0]["speculative_tokens"] == 4


def test_an_export_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    export_flat(trained(), tmp_path / "drafter")
    export_flat(trained(deepseek=True), tmp_path / "drafter")

    assert sorted(path.name for path in (tmp_path / "drafter").iterdir()) == [
        "config.json",
        "model.safetensors",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["drafter"]


@pytest.mark.parametrize("name", ["fc.weight", "d2t", "t2d", "midlayer.mlp.up_proj.weight"])
def test_a_tensor_that_changed_on_disk_is_found(tmp_path: Path, name: str) -> None:
    meant = trained(deepseek=True)
    export_flat(meant, tmp_path / "drafter")
    change_tensors(tmp_path / "drafter", lambda tensors: tensors | {name: tensors[name].roll(1, 0)})

    with pytest.raises(JobFailedError, match=f"{name} is not what was trained"):
        verify(tmp_path / "drafter", meant, meant.layer_ids[DraftEngine.VLLM])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda tensors: without(tensors, "fc.weight"), "lacks, or has beyond a drafter's: fc.weight"),
        (lambda tensors: tensors | {"fc.weight": tensors["fc.weight"][:, 1:].clone()}, "shape of fc.weight"),
        (lambda tensors: tensors | {"fc.weight": tensors["fc.weight"].float()}, "fc.weight is not what"),
        (lambda tensors: tensors | {"fc.bias": torch.zeros(16)}, "beyond a drafter's: fc.bias"),
        (
            lambda tensors: tensors | {"embed_tokens.weight": torch.zeros(50, 16)},
            "embed_tokens.weight is not",
        ),
        (lambda tensors: without(tensors, "d2t", "t2d"), "d2t, t2d is not what was trained"),
    ],
    ids=["missing", "cut", "wider", "beyond", "embeddings", "no map"],
)
def test_names_shapes_and_types_are_looked_at_again(
    tmp_path: Path, change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]], words: str
) -> None:
    meant = trained(deepseek=True)
    export_flat(meant, tmp_path / "drafter")
    change_tensors(tmp_path / "drafter", change)

    with pytest.raises(JobFailedError, match=words):
        verify(tmp_path / "drafter", meant, meant.layer_ids[DraftEngine.VLLM])


def change_tensors(
    folder: Path, change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]
) -> None:
    path = folder / "model.safetensors"
    save_file(change(load_file(path)), path)


def without(tensors: dict[str, torch.Tensor], *names: str) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in tensors.items() if name not in names}


@pytest.mark.parametrize("written", ["midlayer.", "layers.0.", "model.layers.0."])
def test_weights_are_read_under_each_name_that_checkpoints_have_for_the_layer(
    tmp_path: Path, written: str
) -> None:
    meant = trained(deepseek=True)
    export_flat(meant, tmp_path / "drafter")
    change_tensors(
        tmp_path / "drafter",
        lambda tensors: (
            {name.replace("midlayer.", written): tensor for name, tensor in tensors.items()}
            | {"embed_tokens.weight": torch.zeros(50, 16)}
        ),
    )
    found = read_weights(TensorFolder(tmp_path / "drafter"), meant.config)

    assert found.keys() == meant.weights.keys()
    assert all(torch.equal(found[name], x.bfloat16().float()) for name, x in meant.weights.items())


def test_weights_that_are_no_numbers_are_not_exported(tmp_path: Path) -> None:
    meant = trained(deepseek=True)
    broken = {**meant.weights, "norm.weight": torch.full((16,), np.inf)}

    with pytest.raises(JobFailedError, match=r"norm.weight, with NaN or infinite values"):
        export_flat(replace(meant, weights=broken), tmp_path / "drafter")
    assert not (tmp_path / "drafter").exists()
