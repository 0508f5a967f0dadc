"""A model's folder that has only what the extractor reads: config, tokenizer, final norm and output head."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from tests.support.tiny_model import VOCABULARY, make_tiny_model

LAYERS, HIDDEN, CONTEXT_LENGTH = 8, 16, 4096


def make_headed_model(path: Path, *, seed: int = 0, **config: Any) -> Path:
    """Writes the folder."""
    make_tiny_model(path)
    fields = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": LAYERS,
        "hidden_size": HIDDEN,
        "vocab_size": len(VOCABULARY),
        "max_position_embeddings": CONTEXT_LENGTH,
        "num_attention_heads": 2,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        **config,
    }
    (path / "config.json").write_text(json.dumps(fields))
    numbers = np.random.default_rng(seed)
    save_file(
        {
            "model.norm.weight": numbers.uniform(0.5, 1.5, HIDDEN).astype(np.float32),
            "lm_head.weight": numbers.normal(size=(len(VOCABULARY), HIDDEN)).astype(np.float32),
        },
        path / "model.safetensors",
    )
    return path
