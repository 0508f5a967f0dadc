"""Decoding by a table: the bytes of every token of a byte-level vocabulary.

In such a vocabulary (GPT-2's and most since) the text of ids is that of their tokens' bytes, one after the
other. A table of them gives it ten times faster than a tokenizer that is made for every kind of vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final


class ByteTable:
    """Token ids to text."""

    def __init__(self, tokens: Sequence[bytes], special: Iterable[int]) -> None:
        """Takes the bytes of each id (none where there is no token), and which are left out of plain text."""
        self._bytes: Final = list(tokens)
        self._plain: Final = list(tokens)
        for token in special:
            self._plain[token] = b""

    def decode(self, ids: Iterable[int], *, plain: bool) -> str:
        """Text of ids; what is no UTF-8 becomes U+FFFD, as decoders have it.

        Raises:
            IndexError: An id is above all that the vocabulary has.
        """
        tokens = self._plain if plain else self._bytes
        return b"".join(map(tokens.__getitem__, ids)).decode(errors="replace")


def read_byte_table(backend: Any) -> ByteTable | None:
    """The table of a tokenizer of the `tokenizers` library; None when its vocabulary is of another kind.

    It is proven on the whole vocabulary, token after token, before it is given out.
    """
    if type(backend.decoder).__name__ != "ByteLevel":
        return None
    vocabulary = backend.get_vocab(with_added_tokens=True)
    tokens = [b""] * (max(vocabulary.values()) + 1)
    for token, place in vocabulary.items():
        tokens[place] = _bytes_of(token)
    added = backend.get_added_tokens_decoder()
    table = ByteTable(tokens, (place for place, token in added.items() if token.special))
    every = list(range(len(tokens)))
    is_proven = all(
        table.decode(every, plain=plain) == backend.decode(every, skip_special_tokens=plain)
        for plain in (False, True)
    )
    return table if is_proven else None


def _bytes_of(token: str) -> bytes:
    """The bytes that a token's letters stand for; an added one may be written as it is."""
    try:
        return bytes([_LETTERS[letter] for letter in token])
    except KeyError:
        return token.encode()


def _letters() -> dict[str, int]:
    """How byte-level BPE writes each byte.

    https://github.com/openai/gpt-2/blob/master/src/encoder.py
    """
    shown = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(256 + n): byte for n, byte in enumerate(hidden)}


_LETTERS: Final = _letters()
