"""Reading the target's few tensors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from draftmill_jobs.train.target import TargetError, read_target
from draftmill_jobs.train.tensors import TensorFolderError

PLAIN: dict[str, Any] = {"model_type": "llama", "rms_norm_eps": 1e-5}


def write_target(
    folder: Path, config: dict[str, Any], prefix: str = "model.", head: str = "lm_head.weight"
) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {
        f"{prefix}embed_tokens.weight": torch.arange(12.0).view(6, 2),
        f"{prefix}layers.0.input_layernorm.weight": torch.zeros(2),
        f"{prefix}norm.weight": torch.tensor([1.0, 2.0]),
        "vision_tower.final.norm.weight": torch.zeros(7),
    }
    if head:
        tensors[head] = torch.ones(6, 2)
    save_file(tensors, folder / "model.safetensors")
    return folder


def test_a_multimodal_targets_text_part_is_found(tmp_path: Path) -> None:
    """Reported failure 17 (SpecForge#839): the width of Kimi-K2.5 was looked for at its top level."""
    config = {"model_type": "kimi_k25", "text_config": {"model_type": "kimi_k2", "rms_norm_eps": 1e-6}}
    folder = write_target(tmp_path, config, "language_model.model.", "language_model.lm_head.weight")
    target = read_target(folder)

    assert (target.vocab_size, target.hidden_size, target.norm_eps) == (6, 2, 1e-6)
    assert target.norm.tolist() == [1.0, 2.0]
    assert target.head.unique().tolist() == [1.0]


def test_tied_embeddings_are_the_head(tmp_path: Path) -> None:
    target = read_target(write_target(tmp_path, {**PLAIN, "tie_word_embeddings": True}, head=""))

    assert torch.equal(target.head, target.embeddings)


def test_weights_in_several_files_are_found_by_their_index(tmp_path: Path) -> None:
    folder = write_target(tmp_path, PLAIN)
    (folder / "model.safetensors").rename(folder / "part-1.safetensors")
    save_file({"lm_head.weight": torch.zeros(6, 2)}, folder / "part-2.safetensors")
    names = dict.fromkeys(("model.embed_tokens.weight", "model.norm.weight"), "part-1.safetensors")
    index = {"weight_map": {**names, "lm_head.weight": "part-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))

    assert read_target(folder).head.unique().tolist() == [0.0]


@pytest.mark.parametrize(
    ("config", "head", "words"),
    [
        (PLAIN, "", r"has 0 tensors named \*lm_head.weight"),
        (PLAIN, "lm_head.weight_packed", r"exactly one is needed, unquantised"),
        ({**PLAIN, "model_type": "gemma2"}, "lm_head.weight", "'gemma2' is not known to be a plain RMSNorm"),
        ({**PLAIN, "model_type": "qwen3_next"}, "lm_head.weight", "'qwen3_next' is not known to be a plain"),
        ({**PLAIN, "logits_scaling": 8}, "lm_head.weight", "changed by logits_scaling"),
    ],
)
def test_a_target_whose_distribution_cannot_be_rebuilt_is_refused(
    tmp_path: Path, config: dict[str, Any], head: str, words: str
) -> None:
    with pytest.raises(TargetError, match=words):
        read_target(write_target(tmp_path, config, head=head))


def test_a_part_that_the_index_names_and_that_is_not_there_is_named(tmp_path: Path) -> None:
    folder = write_target(tmp_path, PLAIN)
    names = ("model.embed_tokens.weight", "model.norm.weight", "lm_head.weight")
    index = {"weight_map": dict.fromkeys(names, "model-00002-of-00002.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))

    with pytest.raises(TensorFolderError, match=r"model-00002-of-00002.safetensors, which should have"):
        read_target(folder)


@pytest.mark.parametrize("index", ["{", "[]", "{}", '{"weight_map": 3}'])
def test_an_index_that_is_none_is_named(tmp_path: Path, index: str) -> None:
    folder = write_target(tmp_path, PLAIN)
    (folder / "model.safetensors.index.json").write_text(index)

    with pytest.raises(TensorFolderError, match="is no index of safetensors files"):
        read_target(folder)


def test_half_a_file_is_no_target(tmp_path: Path) -> None:
    weights = write_target(tmp_path, PLAIN) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])

    with pytest.raises(TensorFolderError, match="is not a whole safetensors file"):
        read_target(tmp_path)
