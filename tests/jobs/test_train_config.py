"""What a drafter's config says: rope in two spellings, layer ids in two conventions, formats, refusals."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from draftmill_api.v1alpha1.draftertrain import WrittenLayerIds
from draftmill_jobs.train.draft_config import DraftConfigError, read_config
from draftmill_jobs.train.layers import (
    DraftEngine,
    LayerIdError,
    default_layer_ids,
    entering_layer_ids,
    is_deepseek_family,
    layer_ids_for,
)
from draftmill_jobs.train.rope import Rope, RopeError

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}
DEEPSEEK_YARN = {**YARN, "mscale": 1.0, "mscale_all_dim": 0.7, "beta_fast": 30, "beta_slow": 2}
KINDS = [
    {},
    {"rope_type": "linear", "factor": 2.0},
    LLAMA3,
    YARN,
    DEEPSEEK_YARN,
    {**YARN, "attention_factor": 0.9},
]
FLAT: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "num_hidden_layers": 1,
    "vocab_size": 500,
    "draft_vocab_size": 100,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1_000_000.0,
    "rope_scaling": None,
    "max_position_embeddings": 4096,
    "eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 30, 58], "use_aux_hidden_state": True},
}
LAYER = {
    key: value
    for key, value in FLAT.items()
    if key not in ("draft_vocab_size", "eagle_config", "architectures")
}
SPECULATORS: dict[str, Any] = {
    "speculators_model_type": "eagle3",
    "architectures": ["Eagle3DraftModel"],
    "transformer_layer_config": LAYER,
    "eagle_aux_hidden_state_layer_ids": [2, 30, 58],
    "draft_vocab_size": 100,
    "norm_before_residual": False,
}


@pytest.mark.parametrize("scaling", KINDS, ids=lambda scaling: scaling.get("rope_type", "default"))
def test_frequencies_are_those_of_transformers(scaling: dict[str, Any]) -> None:
    config = LlamaConfig(
        hidden_size=64,
        num_attention_heads=2,
        max_position_embeddings=1024,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0, **scaling},
    )
    cos, sin = Rope(10_000.0, scaling).tables(1024, 32)

    if scaling:
        frequencies, factor = ROPE_INIT_FUNCTIONS[scaling["rope_type"]](config, torch.device("cpu"))
    else:
        frequencies, factor = 10_000.0 ** -(torch.arange(0, 32, 2) / 32), 1.0
    angles = torch.arange(1024)[:, None] * frequencies.double()
    assert torch.allclose(cos[:, :16], (angles.cos() * factor).float(), atol=2e-4)
    assert torch.allclose(sin[:, 16:], (angles.sin() * factor).float(), atol=2e-4)


@pytest.mark.parametrize("scaling", KINDS, ids=lambda scaling: scaling.get("rope_type", "default"))
def test_both_spellings_are_written_and_either_is_read(scaling: dict[str, Any]) -> None:
    rope = Rope(500_000.0, scaling)
    both = rope.to_config()
    older = {key: both[key] for key in ("rope_theta", "rope_scaling")}

    assert Rope.from_config(both) == Rope.from_config(older) == rope
    assert Rope.from_config({"rope_parameters": both["rope_parameters"]}) == rope


def test_the_older_name_of_the_kind_is_read() -> None:
    config = {
        "rope_theta": 1e4,
        "rope_scaling": {"type": "yarn", "factor": 2.0},
        "max_position_embeddings": 99,
    }

    assert Rope.from_config(config).scaling == {
        "rope_type": "yarn",
        "factor": 2.0,
        "original_max_position_embeddings": 99,
    }


def test_spellings_that_differ_are_refused() -> None:
    with pytest.raises(RopeError, match=r"rope_parameters say .* rope_theta and rope_scaling say"):
        Rope.from_config({"rope_theta": 1e4, "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}})


def test_a_kind_that_is_not_supported_is_named() -> None:
    with pytest.raises(RopeError, match="'longrope' is not supported"):
        Rope.from_config({"rope_scaling": {"rope_type": "longrope"}})


def test_both_formats_say_the_same_of_one_drafter() -> None:
    flat, nested = read_config(FLAT), read_config(SPECULATORS)

    assert flat.config == nested.config
    assert flat.layer_ids == nested.layer_ids == (2, 30, 58)
    assert (flat.layer_meaning, nested.layer_meaning) == (None, WrittenLayerIds.ENTERING_LAYER)
    assert (flat.config.kv_heads, flat.config.head_dim, flat.config.states) == (2, 32, 3)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (
            {**FLAT, "architectures": ["Eagle3DeepseekV2ForCausalLM"]},
            r"Eagle3DeepseekV2ForCausalLM has .*\(MLA\)",
        ),
        ({**FLAT, "kv_lora_rank": 512}, r"\(MLA\)"),
        ({**FLAT, "architectures": ["LlamaForCausalLM"]}, "are no EAGLE-3 drafter's"),
        ({**FLAT, "norm_before_residual": True}, "norm_before_residual is true"),
        ({**FLAT, "num_hidden_layers": 2}, "num_hidden_layers 2 cannot be trained"),
        ({**FLAT, "attention_bias": True}, "attention_bias True cannot be trained"),
        ({**FLAT, "eagle_config": {"use_aux_hidden_state": False}}, "sees one state only"),
        ({key: FLAT[key] for key in FLAT if key != "hidden_size"}, "does not name 'hidden_size'"),
        ({**FLAT, "draft_vocab_size": 501}, "draft_vocab_size 501 is above vocab_size 500"),
        ({**SPECULATORS, "norm_before_residual": True}, "norm_before_residual is true"),
        (
            {key: SPECULATORS[key] for key in SPECULATORS if key != "norm_before_residual"},
            "norm_before_residual is missing, which means true",
        ),
        ({**SPECULATORS, "speculators_model_type": "dflash"}, "'dflash' is not eagle3"),
        ({**SPECULATORS, "transformer_layer_config": {**LAYER, "model_type": "qwen3"}}, "model_type 'qwen3'"),
        ([FLAT], "is no object with a list of architectures"),
        ({**FLAT, "architectures": 3}, "is no object with a list of architectures"),
        ({**FLAT, "eagle_config": [2, 30, 58]}, "eagle_config in the drafter's config.json is no object"),
        ({**FLAT, "eagle_config": {"eagle_aux_hidden_state_layer_ids": "2,30"}}, "are no list of numbers"),
        ({**FLAT, "hidden_size": None}, "the drafter's config.json: int"),
        ({**FLAT, "head_dim": None, "num_attention_heads": 0}, "the drafter's config.json: .* zero"),
    ],
)
def test_another_kind_of_drafter_is_refused_by_name(config: dict[str, Any], words: str) -> None:
    with pytest.raises(DraftConfigError, match=words):
        read_config(config)


KIMI = {"architectures": ["KimiK25ForConditionalGeneration"], "text_config": {"model_type": "kimi_k2"}}
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
GLM_LITE = {"architectures": ["Glm4MoeLiteForCausalLM"], "model_type": "glm4_moe_lite"}
GLM = {"architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe"}


@pytest.mark.parametrize(
    ("target", "engine", "written"),
    [
        (KIMI, DraftEngine.VLLM, [2, 30, 58]),
        (KIMI, DraftEngine.SGLANG, [2, 30, 58]),
        (LLAMA, DraftEngine.VLLM, [2, 30, 58]),
        (LLAMA, DraftEngine.SGLANG, [1, 29, 57]),
        (GLM, DraftEngine.SGLANG, [1, 29, 57]),
        (GLM_LITE, DraftEngine.SGLANG, [2, 30, 58]),
        ({"architectures": ["GlmMoeDsaForCausalLM"]}, DraftEngine.SGLANG, [2, 30, 58]),
        ({"architectures": ["MistralLarge3ForCausalLM"]}, DraftEngine.SGLANG, [2, 30, 58]),
    ],
)
def test_each_engine_gets_the_ids_that_it_reads_as_ours_and_they_are_read_back(
    target: dict[str, Any], engine: DraftEngine, written: list[int]
) -> None:
    family = is_deepseek_family(target)
    meaning = WrittenLayerIds.OUTPUT_OF_LAYER if written[0] == 1 else WrittenLayerIds.ENTERING_LAYER

    assert layer_ids_for(engine, default_layer_ids(61), target_is_deepseek=family) == written
    assert entering_layer_ids(written, layers=61, target_is_deepseek=family, meaning=None) == (2, 30, 58)
    assert entering_layer_ids(written, layers=61, target_is_deepseek=family, meaning=meaning) == (2, 30, 58)


def test_a_kimi_drafter_that_counts_outputs_is_brought_to_ours() -> None:
    assert entering_layer_ids([1, 29, 57], layers=61, target_is_deepseek=True, meaning=None) == (2, 30, 58)


def test_ids_that_can_be_read_both_ways_are_refused_until_somebody_says_which() -> None:
    with pytest.raises(LayerIdError, match="EnteringLayer, OutputOfLayer"):
        entering_layer_ids([5, 9, 20], layers=32, target_is_deepseek=False, meaning=None)


def test_ids_outside_the_target_are_refused() -> None:
    with pytest.raises(LayerIdError, match="do not fit a target of 4 layers"):
        entering_layer_ids(
            [2, 3, 4], layers=4, target_is_deepseek=False, meaning=WrittenLayerIds.OUTPUT_OF_LAYER
        )


@pytest.mark.parametrize(("ids", "family"), [([0, 2, 4], False), ([1, 2, 4], True)])
def test_ids_that_sglang_would_take_for_others_are_not_written(ids: list[int], family: bool) -> None:
    with pytest.raises(LayerIdError, match="SGLang"):
        layer_ids_for(DraftEngine.SGLANG, ids, target_is_deepseek=family)
