"""A Llama of four layers with random weights and the tiny model's tokenizer: computes in milliseconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.tiny_model import VOCABULARY, make_tiny_model

LAYERS, HIDDEN = 4, 32
CONTEXT_LENGTH = 128


def make_tiny_llama(
    path: Path, *, layers: int = LAYERS, hidden: int = HIDDEN, tied: bool = False, seed: int = 0
) -> Path:
    """Writes the model's folder. A head has a quarter of its width, and vLLM on CPU takes none below 32."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    make_tiny_model(path)
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=hidden,
        intermediate_size=64,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT_LENGTH,
        tie_word_embeddings=tied,
        initializer_range=0.3,
    )
    model: Any = LlamaForCausalLM(config)
    with torch.no_grad():
        model.model.norm.weight.uniform_(0.5, 1.5)
    model.save_pretrained(path)
    return path
