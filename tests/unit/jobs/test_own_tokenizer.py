"""A tokenizer that a model's folder brings as Python code, as Kimi's is: no Rust, no offsets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import transformers.dynamic_module_utils

from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.model.tokenizer import Tokenizer

PAIR = 300  # the id of "ab"; every other character is its code point
OWN_CODE = f"""
from transformers import PreTrainedTokenizer


class OwnTokenizer(PreTrainedTokenizer):
    vocab_size = {PAIR} + 1

    def get_vocab(self):
        return {{**{{chr(i): i for i in range({PAIR})}}, "ab": {PAIR}}}

    def _tokenize(self, text, **_):
        tokens = []
        while text:
            size = 2 if text.startswith("ab") else 1
            tokens.append(text[:size])
            text = text[size:]
        return tokens

    def _convert_token_to_id(self, token):
        return self.get_vocab()[token]

    def _convert_id_to_token(self, number):
        return "ab" if number == {PAIR} else chr(number)

    def convert_tokens_to_string(self, tokens):
        return "".join(tokens)
"""
TEMPLATE = "{% for message in messages %}[{{ message.content }}]{% endfor %}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    made = tmp_path / "model"
    made.mkdir()
    (made / "tokenization_own.py").write_text(OWN_CODE)
    config = {
        "tokenizer_class": "OwnTokenizer",
        "auto_map": {"AutoTokenizer": ["tokenization_own.OwnTokenizer", None]},
        "chat_template": TEMPLATE,
    }
    (made / "tokenizer_config.json").write_text(json.dumps(config))
    return made


def test_it_is_used_as_it_is_and_never_converted(folder: Path) -> None:
    """Reported failure 25 (SpecForge#108, vllm#39590): no offsets; made fast, it gave other ids."""
    tokenizer = Tokenizer.load(folder, trust_remote_code=True)
    ids = tokenizer.prompt_ids([{"role": "user", "content": "cab"}], None, {})

    assert ids == [ord("["), ord("c"), PAIR, ord("]")]
    assert tokenizer.decode(ids) == "[cab]"
    assert not tokenizer.decodes_fast


def test_its_code_runs_only_where_that_is_allowed(folder: Path) -> None:
    with pytest.raises(JobRefusedError, match=r"model.trustRemoteCode: true"):
        Tokenizer.load(folder, trust_remote_code=False)
