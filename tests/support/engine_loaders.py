"""How engines take a drafter's folder: the tensors that they have a place for, the map, the layers.

By the loaders of vLLM 0.32 (`llama_eagle3`) and SGLang 0.5.23 (`llama_eagle3`, and how `llama` and
`deepseek_v2` choose the layers whose states they keep). vLLM refuses a tensor that it has no place for;
SGLang passes over it without a word, and over a place that nothing fills as well.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from draftmill_jobs.train.layers import DraftEngine

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Loaded:
    """What became of a folder.

    Attributes:
        filled: Places of the engine's model that got a tensor, with its shape.
        passed_over: Tensors without a place.
        target_ids: What each draft id means; None where the two are the same.
        layers: Whose states the drafter is given, entering a layer.
    """

    filled: dict[str, Shape]
    passed_over: set[str]
    target_ids: list[int] | None
    layers: list[int]


def load(engine: DraftEngine, folder: Path, *, target_is_deepseek: bool) -> Loaded:
    """Goes through the tensors as the engine does."""
    config = read(folder)
    wanted, filled, passed_over = places(config), dict[str, Shape](), set[str]()
    target_ids: list[int] | None = None
    for name, tensor in load_file(folder / "model.safetensors").items():
        place = name.replace("midlayer.", "layers.0.")
        if name == "d2t" and has_map(engine, config):
            target_ids = (tensor + torch.arange(len(tensor))).tolist()
        elif place in wanted:
            filled[place] = tuple(tensor.shape)
        elif name != "t2d":
            passed_over.add(name)
    return Loaded(filled, passed_over, target_ids, layers(engine, config, target_is_deepseek))


def read(folder: Path) -> dict[str, Any]:
    """A folder's config.json."""
    found: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return found


def has_map(engine: DraftEngine, config: dict[str, Any]) -> bool:
    """vLLM has no parameter for a map from a whole vocabulary to itself."""
    return engine is DraftEngine.SGLANG or config["draft_vocab_size"] != config["vocab_size"]


def places(config: dict[str, Any]) -> dict[str, Shape]:
    """What both build by a config, but for the embeddings, which they share with the target."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    size = config.get("head_dim") or hidden // config["num_attention_heads"]
    queries, keys = config["num_attention_heads"] * size, config["num_key_value_heads"] * size
    state = config.get("target_hidden_size", hidden)
    states = config.get("num_aux_hidden_states") or len(_written(config))
    layer = {
        **{
            f"self_attn.{part}_proj": (rows, 2 * hidden)
            for part, rows in zip("qkv", (queries, keys, keys), strict=True)
        },
        "self_attn.o_proj": (hidden, queries),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
        **dict.fromkeys(("input_layernorm", "hidden_norm", "post_attention_layernorm"), (hidden,)),
    }
    found: dict[str, Shape] = {f"layers.0.{name}.weight": shape for name, shape in layer.items()}
    found |= {"fc.weight": (hidden, states * state), "norm.weight": (hidden,)}
    found["lm_head.weight"] = (config["draft_vocab_size"], hidden)
    if config.get("norm_before_fc"):
        found["input_norm.weight"] = (states * state,)
    if config.get("fc_norm"):
        found |= {f"fc_norm.{number}.weight": (state,) for number in range(states)}
    return found


def layers(engine: DraftEngine, config: dict[str, Any], target_is_deepseek: bool) -> list[int]:
    """vLLM takes the ids as they are; SGLang adds 1, for DeepSeek's targets only where the first one is 1."""
    ids = _written(config)
    if engine is DraftEngine.VLLM or (target_is_deepseek and ids[0] != 1):
        return list(ids)
    return [each + 1 for each in ids]


def _written(config: dict[str, Any]) -> Sequence[int]:
    ids: list[int] = config["eagle_config"]["eagle_aux_hidden_state_layer_ids"]
    return ids
