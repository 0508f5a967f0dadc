"""The model's own tokenizer and chat template, without torch."""

from __future__ import annotations

import contextlib
import hashlib
import os
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.model.byte_table import ByteTable, read_byte_table
from draftmill_jobs.shared.torchless import show_torch


class TemplateError(Exception):
    """The chat template refuses these messages."""


def _load(folder: Path, *, trust_remote_code: bool) -> Any:
    """Without torch, unless code of the folder imports it and it is installed."""
    import transformers  # noqa: PLC0415 - heavy, and not always needed

    load = partial(
        transformers.AutoTokenizer.from_pretrained,
        folder,
        trust_remote_code=trust_remote_code,
        local_files_only=True,
    )
    try:
        return load()
    except ImportError:
        if trust_remote_code and show_torch():
            return load()
        raise


class Tokenizer:
    """Chat template, decoding, and ids of special tokens.

    The chat template must not be applied in two threads at once; decoding may happen in any.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    @classmethod
    def load(cls, folder: Path, *, trust_remote_code: bool) -> Tokenizer:
        """Reads the tokenizer of a model's folder.

        Raises:
            JobRefusedError: There is none, or it needs code of the folder that may not run.
        """
        os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
        os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
        from huggingface_hub.errors import StrictDataclassError  # noqa: PLC0415 - heavy, and not always needed

        try:
            tokenizer = _load(folder, trust_remote_code=trust_remote_code)
        except (OSError, ValueError, ImportError, KeyError, StrictDataclassError) as error:
            hint = (
                "" if trust_remote_code else " (if it needs the folder's code: model.trustRemoteCode: true)"
            )
            raise JobRefusedError(
                "TokenizerUnreadable", f"cannot load the tokenizer in {folder}{hint}: {error}"
            ) from error
        if not tokenizer.chat_template:
            raise JobRefusedError("ChatTemplateMissing", f"the tokenizer in {folder} has no chat template")
        return cls(tokenizer)

    def prompt_ids(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None,
        arguments: dict[str, Any],
    ) -> list[int]:
        """The chat template's result as token ids, generation prompt included.

        Raises:
            TemplateError: The template refuses the messages.
        """
        import jinja2  # noqa: PLC0415 - heavy, and not always needed

        try:
            ids = self._tokenizer.apply_chat_template(
                messages,
                tools=tools,
                add_generation_prompt=True,
                tokenize=True,
                return_dict=False,
                **arguments,
            )
        except (jinja2.TemplateError, TypeError, KeyError, ValueError) as error:
            raise TemplateError(str(error) or type(error).__name__) from error
        return [int(token) for token in ids]

    def decode(self, ids: list[int]) -> str:
        """Text of token ids, special tokens included."""
        return self._decode(ids, plain=False)

    def decode_plain(self, ids: list[int]) -> str:
        """Text of token ids without special tokens, for people."""
        return self._decode(ids, plain=True)

    @property
    def decodes_fast(self) -> bool:
        """Whether decoding a long answer takes less than a millisecond."""
        return self._table is not None

    def _decode(self, ids: list[int], *, plain: bool) -> str:
        """The tokens' own text: nothing tidied, no space put between special tokens."""
        if self._table is not None:
            with contextlib.suppress(IndexError):  # an id that no token has is left out below
                return self._table.decode(ids, plain=plain)
        text = self._tokenizer.decode(
            ids,
            skip_special_tokens=plain,
            clean_up_tokenization_spaces=False,
            spaces_between_special_tokens=False,
        )
        return str(text)

    @cached_property
    def _table(self) -> ByteTable | None:
        import transformers  # noqa: PLC0415 - heavy, and not always needed

        kind, known = type(self._tokenizer), transformers.PreTrainedTokenizerFast
        if not issubclass(kind, known) or (kind.decode, kind._decode) != (known.decode, known._decode):
            return None  # it decodes in a way of its own
        return read_byte_table(self._tokenizer.backend_tokenizer)

    @cached_property
    def added_ids(self) -> frozenset[int]:
        """Ids of the tokens that were added to the vocabulary: marks of turns, thinking and tools."""
        return frozenset(int(token) for token in self._tokenizer.added_tokens_decoder)

    def token_id(self, token: str) -> int | None:
        """The id of a token that the vocabulary has under exactly this name."""
        known = self._tokenizer.convert_tokens_to_ids(token)
        if known is None or self._tokenizer.convert_ids_to_tokens(known) != token:
            return None
        return int(known)

    def encode_plain(self, text: str) -> list[int]:
        """Token ids of text, no special tokens added."""
        return [int(token) for token in self._tokenizer.encode(text, add_special_tokens=False)]

    @property
    def end_of_text(self) -> int | None:
        """The tokenizer's end-of-sequence token."""
        return None if self._tokenizer.eos_token_id is None else int(self._tokenizer.eos_token_id)

    @property
    def template(self) -> str:
        """The chat template's text."""
        template = self._tokenizer.chat_template
        return (
            template if isinstance(template, str) else "\n".join(template[name] for name in sorted(template))
        )

    @property
    def template_hash(self) -> str:
        """sha256 of the chat template."""
        return hashlib.sha256(self.template.encode()).hexdigest()
