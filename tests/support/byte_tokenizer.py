"""A byte-level BPE tokenizer as most targets have one, made in milliseconds, and a server's detokeniser."""

from __future__ import annotations

from pathlib import Path

from draftmill_jobs.model.tokenizer import Tokenizer

TEXT = "the model thinks, then it says 5 €, naïve 🙂 日本語\n\n    def f(x): return x\n" * 3
MARKS = ["<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>"]


def make_byte_tokenizer(
    folder: Path,
    *,
    marks_are_special: bool,
    text: str = TEXT,
    vocabulary: int = 330,
    template: str = "{{ '<think>' }}",
) -> Tokenizer:
    """Writes a tokenizer of all bytes and some merges, and loads it.

    Args:
        folder: Where to.
        marks_are_special: Whether think marks are special tokens, which a plain decoding leaves out.
        text: What its merges come from.
        vocabulary: Tokens that are no marks, bytes among them.
        template: The chat template.
    """
    from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers
    from tokenizers import Tokenizer as Backend
    from transformers import PreTrainedTokenizerFast

    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    backend.train_from_iterator([text], trainer)
    backend.add_tokens(
        [
            AddedToken(mark, special=marks_are_special or mark.startswith("<|"), normalized=False)
            for mark in MARKS
        ]
    )
    fast = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|im_end|>")  # type: ignore[no-untyped-call]
    fast.chat_template = template
    fast.save_pretrained(folder)
    return Tokenizer.load(folder, trust_remote_code=False)


def streamed_text(
    tokenizer: Tokenizer, prompt_ids: list[int], ids: list[int], *, special: bool = True
) -> str:
    """What a server says that decodes token by token: half a character at the end is held back."""
    from tokenizers.decoders import DecodeStream

    backend = tokenizer._tokenizer._tokenizer
    stream = DecodeStream(ids=prompt_ids, skip_special_tokens=not special)
    return "".join(stream.step(backend, token) or "" for token in ids)
