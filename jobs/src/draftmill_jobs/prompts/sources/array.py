"""A JSON array read item by item, so that its length does not matter."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_NEAR_THE_END: Final = 16  # characters; what is wrong there may be half of a token


def array_items(pieces: Iterable[bytes]) -> Iterator[Any]:
    """The items of an array whose text comes in pieces; no more than an item and a piece is held.

    Raises:
        ValueError: It is no JSON array.
    """
    text = _Text(pieces)
    text.expect("[")
    if text.next_character() == "]":
        text.expect("]")
    else:
        yield text.value()
        while text.next_character() == ",":
            text.expect(",")
            yield text.value()
        text.expect("]")
    if text.next_character():
        raise ValueError(f"{text.next_character()!r} stands behind the array")


class _Text:
    """A place in a text that comes in pieces."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self._decoder = json.JSONDecoder()
        self._text = ""
        self._at = 0
        self._items = 0

    def next_character(self) -> str:
        """The next one that is no space; nothing at the end."""
        while True:
            space = _SPACE.match(self._text, self._at)
            self._at = space.end() if space is not None else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._read():
                return ""

    def expect(self, character: str) -> None:
        """Goes behind this character.

        Raises:
            ValueError: Another one stands there.
        """
        found = self.next_character()
        if found != character:
            raise ValueError(f"behind item {self._items} stands {found!r} and not {character!r}")
        self._at += 1

    def value(self) -> Any:
        """The value that starts here.

        Raises:
            ValueError: There is none.
        """
        self.next_character()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if not (self._may_go_on(error) and self._read()):
                    raise ValueError(f"item {self._items + 1}: {error.msg}") from error
                continue
            if self._is_number(value) and len(self._text) - end < _NEAR_THE_END and self._read():
                continue  # it may go on
            self._at = end
            self._items += 1
            return value

    @staticmethod
    def _is_number(value: Any) -> bool:
        return isinstance(value, (int, float)) and not isinstance(value, bool)

    def _may_go_on(self, error: json.JSONDecodeError) -> bool:
        is_open = error.msg.startswith("Unterminated string")
        return is_open or error.pos >= len(self._text) - _NEAR_THE_END

    def _read(self) -> bool:
        piece = next(self._pieces, None)
        if piece is None:
            self._utf8.decode(b"", final=True)
            return False
        self._text, self._at = self._text[self._at :] + self._utf8.decode(piece), 0
        return True
