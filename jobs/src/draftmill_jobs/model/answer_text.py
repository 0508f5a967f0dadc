"""The text of an answer and its parts. The ids decide; a server's text is kept where it is that of the ids.

`text` has one definition, however it came about: what the model's own tokenizer makes of the answer's ids,
special tokens included, but for the stop token that ended it. See docs/reference/records.md.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, Protocol

from draftmill_api.record import FinishReason, RecordStatus, Think
from draftmill_jobs.model.marks import MarkFinder
from draftmill_jobs.model.think import Reading, ThinkTokens, read_answer, status_of

_EDGE: Final = 16  # tokens at either end of a server's text that are compared with the ids
_AROUND: Final = 8  # tokens on either side of the think-end mark, likewise
_TORN: Final = "\ufffd"  # what decoders write for bytes that are no UTF-8, as of half a character


class Decoder(Protocol):
    """What is asked of a tokenizer."""

    def decode(self, ids: list[int]) -> str:
        """Text of token ids, special tokens included."""
        ...

    def decode_plain(self, ids: list[int]) -> str:
        """Text of token ids without special tokens."""
        ...

    @property
    def added_ids(self) -> AbstractSet[int]:
        """Ids of tokens that are no text of the vocabulary's own: marks of turns, thinking, tools."""
        ...


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """An answer as a record tells it.

    Attributes:
        text: The whole of it.
        reasoning: For people: without special tokens and the white space around; None when there is none.
        content: The same of the answer proper; None when the answer ended inside its reasoning.
    """

    status: RecordStatus
    think: Think
    text: str
    reasoning: str | None
    content: str | None


class AnswerReader:
    """Reads the answers of one model."""

    def __init__(self, think: ThinkTokens, decoder: Decoder, stop_ids: AbstractSet[int]) -> None:
        self._think = think
        self._decoder = decoder
        self._stop_ids = stop_ids
        self._opens, self._closes = (decoder.decode(list(mark)) for mark in (think.opens, think.closes))
        self._others = frozenset(decoder.added_ids - {*think.opens, *think.closes})
        self._finder = MarkFinder(think.marks | decoder.added_ids)

    def read(
        self, prompt_ids: list[int], output_ids: list[int], finish: FinishReason, said: str | None
    ) -> ReadAnswer:
        """Takes an answer apart.

        Args:
            prompt_ids: The prompt, whose end may open the reasoning.
            output_ids: The answer.
            finish: Why it ended.
            said: The server's own text, special tokens included; None when there is none.
        """
        places = self._finder.places(output_ids)
        reading = read_answer(self._think, prompt_ids, output_ids, places)
        ids = self._without_stop(output_ids, finish)
        marks = [ids[place] for place in places if place < len(ids)]
        only_marks = self._others.isdisjoint(marks)
        opened = sum(token in self._think.opens[:1] for token in marks)
        kept = said is not None and only_marks and self._is_text_of(ids, reading, said, opened)
        text = said if kept and said is not None else self._decoder.decode(ids)
        can_be_cut = kept or (only_marks and self._has_its_marks(text, reading, opened))
        return ReadAnswer(
            status_of(reading, finish),
            reading.think,
            text,
            *self._parts(text, ids, reading, can_be_cut=can_be_cut),
        )

    def _without_stop(self, ids: list[int], finish: FinishReason) -> list[int]:
        by_itself = finish in (FinishReason.STOP, FinishReason.TOOL_CALLS)
        return ids[:-1] if by_itself and ids[-1] in self._stop_ids else ids

    def _is_text_of(self, ids: list[int], reading: Reading, said: str, opened: int) -> bool:
        """Whether a server's text is what its ids say: both ends, the marks, and what is around the first.

        A server leaves out a character of which the limit cut off the rest, and markers where it skips
        special tokens; it may split the text, or put spaces beside markers.
        """
        if len(ids) <= 2 * _EDGE or _TORN in said:
            return False
        decode = self._decoder.decode
        return (
            said.startswith(decode(ids[:_EDGE]).rstrip(_TORN))
            and said.endswith(decode(ids[-_EDGE:]).lstrip(_TORN))
            and self._has_its_marks(said, reading, opened)
            and decode(self._around_the_end_of(reading, ids)).strip(_TORN) in said
        )

    def _has_its_marks(self, text: str, reading: Reading, opened: int) -> bool:
        """Whether the marks stand in the text as often as in the ids: a model may spell one out too."""
        if not self._think.opens:
            return True
        return text.count(self._opens) == opened and text.count(self._closes) == reading.closed

    def _around_the_end_of(self, reading: Reading, ids: list[int]) -> list[int]:
        if reading.reasoning is None:
            return []
        end = int(reading.reasoning.stop)
        return ids[max(0, end - _AROUND) : end + _AROUND]

    def _parts(
        self, text: str, ids: list[int], reading: Reading, *, can_be_cut: bool
    ) -> tuple[str | None, str | None]:
        """Reasoning and content: cut out of the text where the ids allow that, else decoded one by one."""
        if not can_be_cut:
            return self._plain(ids, reading.reasoning), self._plain(ids, reading.content)
        if reading.reasoning is None:
            return None, text.strip()
        inner = text.partition(self._opens)[2] if reading.think is Think.IN_OUTPUT else text
        reasoning, _, content = inner.partition(self._closes)
        return reasoning.strip(), None if reading.content is None else content.strip()

    def _plain(self, ids: list[int], part: slice | None) -> str | None:
        return None if part is None else self._decoder.decode_plain(ids[part]).strip()
