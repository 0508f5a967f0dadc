"""Decoding by a table of bytes gives what the tokenizer gives, to the last half character."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

from draftmill_jobs.model.byte_table import read_byte_table
from draftmill_jobs.model.tokenizer import Tokenizer
from tests.support.byte_tokenizer import make_byte_tokenizer
from tests.support.tiny_model import make_tiny_model

VOCABULARY = 335  # tokens of the byte tokenizer, its marks among them


@pytest.fixture(scope="module", params=[True, False], ids=["special marks", "marks as text"])
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return make_byte_tokenizer(tmp_path_factory.mktemp("tokenizer"), marks_are_special=request.param)


@given(ids=st.lists(st.integers(0, VOCABULARY + 3)), plain=st.booleans())
def test_any_ids_are_decoded_as_the_tokenizer_does(tokenizer: Tokenizer, ids: list[int], plain: bool) -> None:
    theirs = tokenizer._tokenizer.decode(ids, skip_special_tokens=plain, clean_up_tokenization_spaces=False)
    assert tokenizer.decodes_fast
    assert (tokenizer.decode_plain if plain else tokenizer.decode)(ids) == theirs


@given(st.binary())
def test_bytes_that_are_no_utf8_become_what_the_tokenizer_makes_of_them(
    tokenizer: Tokenizer, data: bytes
) -> None:
    backend = tokenizer._tokenizer.backend_tokenizer
    table = read_byte_table(backend)
    assert table is not None
    places = {tokens: place for place, tokens in enumerate(table._bytes) if len(tokens) == 1}
    ids = [places[data[n : n + 1]] for n in range(len(data))]
    assert table.decode(ids, plain=False) == backend.decode(ids, skip_special_tokens=False)


def test_added_tokens_are_written_as_they_are_whatever_their_letters() -> None:
    backend = Backend(models.BPE({"a": 0, "Ġ": 1}, []))
    backend.decoder = decoders.ByteLevel()
    backend.add_tokens(["Ġé", "<｜User｜>", "two words"])  # noqa: RUF001 - its bars are wide
    table = read_byte_table(backend)
    assert table is not None
    assert table.decode([2, 1, 3, 4], plain=False) == backend.decode([2, 1, 3, 4])


def test_a_vocabulary_of_another_kind_has_no_table(tmp_path: Path) -> None:
    tiny = Tokenizer.load(make_tiny_model(tmp_path).path, trust_remote_code=False)
    assert not tiny.decodes_fast
    assert tiny.decode([9, 10]) == "Count from"


def test_a_tokenizer_that_decodes_in_a_way_of_its_own_is_asked_itself(tokenizer: Tokenizer) -> None:
    class Shouting(type(tokenizer._tokenizer)):  # type: ignore[misc]
        def _decode(self, *arguments: object, **options: object) -> str:
            return str(super()._decode(*arguments, **options)).upper()

    shouting = Shouting(tokenizer_object=tokenizer._tokenizer.backend_tokenizer)
    assert Tokenizer(shouting).decode(tokenizer.encode_plain("quiet")) == "QUIET"
