"""A model's folder that is made in milliseconds: a WordLevel tokenizer, a chat template, a config."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

UNKNOWN, START, END, THINK, CLOSE = 0, 1, 2, 3, 4
_SPECIAL = ["<unk>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
_WORDS = ["system", "user", "assistant", "tool", "Count", "from", "one", "to", "five."]
NUMBERS = 1000
FIRST_NUMBER = len(_SPECIAL) + len(_WORDS)
VOCABULARY = {word: i for i, word in enumerate([*_SPECIAL, *_WORDS, *(f"w{i}" for i in range(NUMBERS))])}
WORDS = {i: word for word, i in VOCABULARY.items()}
CONTEXT_LENGTH = 4096


class Thinking(StrEnum):
    """How the model thinks."""

    NONE = "none"
    OPEN_IN_PROMPT = "open_in_prompt"
    IN_OUTPUT = "in_output"


@dataclass(frozen=True)
class TinyModel:
    """The model's folder and the same tokenizer in a few lines of Python."""

    path: Path
    thinking: Thinking = Thinking.NONE
    name: str = "tiny"

    def prompt_ids(self, messages: list[dict[str, Any]]) -> list[int]:
        """What the chat template gives."""
        ids: list[int] = []
        for message in messages:
            words = f"{message['role']} {message['content']}".split()
            ids += [START, *(VOCABULARY.get(word, UNKNOWN) for word in words), END]
        ids += [START, VOCABULARY["assistant"]]
        return [*ids, THINK] if self.thinking is Thinking.OPEN_IN_PROMPT else ids

    def text(self, ids: list[int], *, special: bool = True) -> str:
        """Words of ids, with or without special tokens."""
        return " ".join(WORDS[i] for i in ids if special or i >= len(_SPECIAL))


def make_tiny_model(path: Path, thinking: Thinking = Thinking.NONE) -> TinyModel:
    """Writes the folder."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    path.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(models.WordLevel(VOCABULARY, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        unk_token="<unk>",
        eos_token="<|im_end|>",
        additional_special_tokens=["<|im_start|>", "<think>", "</think>"],
    )
    opening = "{{ ' <think>' }}" if thinking is Thinking.OPEN_IN_PROMPT else ""
    note = "{# answers begin with <think> #}" if thinking is Thinking.IN_OUTPUT else ""
    fast.chat_template = (
        f"{note}{{% for m in messages %}}{{{{ '<|im_start|> ' + m['role'] + ' ' + m['content'] "
        f"+ ' <|im_end|> ' }}}}{{% endfor %}}{{% if add_generation_prompt %}}"
        f"{{{{ '<|im_start|> assistant' }}}}{opening}{{% endif %}}"
    )
    fast.save_pretrained(path)
    config = {
        "architectures": ["TinyForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": 2,
        "hidden_size": 8,
        "num_attention_heads": 2,
        "vocab_size": len(VOCABULARY),
        "max_position_embeddings": CONTEXT_LENGTH,
        "eos_token_id": END,
    }
    (path / "config.json").write_text(json.dumps(config))
    return TinyModel(path, thinking)
