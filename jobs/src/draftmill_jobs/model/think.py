"""How each model family marks its reasoning, and reading an answer's ids with that. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from draftmill_api.record import FinishReason, RecordStatus, Think

_TAIL = 2  # a generation prompt opens or closes thinking in its last token, or before a last "\n"
_HEAD = 4  # a model that opens thinking itself does so at once


class Vocabulary(Protocol):
    """What the table asks of a tokenizer."""

    def token_id(self, token: str) -> int | None:
        """The id of a token of exactly this name."""
        ...

    def encode_plain(self, text: str) -> list[int]:
        """Token ids of text."""
        ...

    @property
    def template(self) -> str:
        """The chat template's text."""
        ...


@dataclass(frozen=True, slots=True)
class ThinkTokens:
    """A family's marks as token ids of this model.

    Attributes:
        family: Name of the family.
        opens: The tokens that begin reasoning.
        closes: The tokens that end it.
        tool_calls: Tokens that begin tool calls, which may stand inside reasoning.
    """

    family: str
    opens: tuple[int, ...]
    closes: tuple[int, ...]
    tool_calls: frozenset[int]

    @property
    def marks(self) -> frozenset[int]:
        """Every token with which a mark begins."""
        return frozenset((*self.opens[:1], *self.closes[:1], *self.tool_calls))


NO_THINKING = ThinkTokens("none", (), (), frozenset())


@dataclass(frozen=True, slots=True)
class _Family:
    name: str
    sign: str  # a token that no other family has; "" takes whatever is left
    tool_call: str


_TAGGED = (  # all of them write <think> and </think>, each as one token
    _Family("kimi-k2", "<|im_middle|>", "<|tool_calls_section_begin|>"),
    _Family("deepseek-r1", "<｜Assistant｜>", "<｜tool▁calls▁begin｜>"),  # noqa: RUF001 - its bars are wide
    _Family("qwen3", "<|im_start|>", "<tool_call>"),
)


def think_tokens(vocabulary: Vocabulary) -> ThinkTokens:
    """Finds the family by the tokens that the model's own vocabulary and template have, never by id.

    A model whose template does not speak of thinking has none, whatever its vocabulary reserves.
    """
    channel, message = vocabulary.token_id("<|channel|>"), vocabulary.token_id("<|message|>")
    if channel is not None and message is not None:
        return _harmony(vocabulary, channel)
    opens, closes = vocabulary.token_id("<think>"), vocabulary.token_id("</think>")
    if opens is None or closes is None or "think>" not in vocabulary.template:
        return NO_THINKING
    for family in _TAGGED:
        if vocabulary.token_id(family.sign) is not None:
            tool_call = vocabulary.token_id(family.tool_call)
            return ThinkTokens(
                family.name, (opens,), (closes,), frozenset(() if tool_call is None else (tool_call,))
            )
    return ThinkTokens("think-tags", (opens,), (closes,), frozenset())


def _harmony(vocabulary: Vocabulary, channel: int) -> ThinkTokens:
    call = vocabulary.token_id("<|call|>")
    return ThinkTokens(
        "gpt-oss",
        (channel, *vocabulary.encode_plain("analysis")),
        (channel, *vocabulary.encode_plain("final")),
        frozenset(() if call is None else (call,)),
    )


@dataclass(frozen=True, slots=True)
class Reading:
    """An answer's ids, taken apart.

    Attributes:
        think: Where reasoning opens.
        closed: How often it is closed.
        reasoning: Where its ids stand in the answer; None when there is no reasoning.
        content: Where those of the answer proper stand; None when reasoning was never closed and no tool is
            called in it.
        calls_tool: A tool call stands in the answer.
    """

    think: Think
    closed: int
    reasoning: slice | None
    content: slice | None
    calls_tool: bool


def read_answer(
    tokens: ThinkTokens,
    prompt_ids: Sequence[int],
    output_ids: list[int],
    places: Sequence[int] | None = None,
) -> Reading:
    """Takes an answer apart at its think tokens. A tool call inside reasoning ends it.

    Args:
        tokens: The model's.
        prompt_ids: The prompt, whose end may open the reasoning.
        output_ids: The answer.
        places: Where in it a mark may begin, in order; None when that is not known.
    """
    if not tokens.opens:
        return Reading(Think.NONE, 0, None, slice(0, None), calls_tool=False)
    if places is None:
        places = range(len(output_ids))
    tail = list(prompt_ids[-(_TAIL + len(tokens.opens) - 1) :])
    opened_at = _find(tail, range(len(tail)), tokens.opens)
    closed_in_prompt = _find(tail, range(len(tail)), tokens.closes) >= 0
    opened_in_output = _find(output_ids, places, tokens.opens)
    begin = 0
    if opened_at >= 0 and not closed_in_prompt:
        think = Think.OPEN_IN_PROMPT
    elif not closed_in_prompt and 0 <= opened_in_output <= _HEAD:
        think = Think.IN_OUTPUT
        begin = opened_in_output + len(tokens.opens)
    else:
        think = Think.NONE
    closed = sum(_stands(output_ids, place, tokens.closes) for place in places)
    if think is Think.NONE and tokens.family == "gpt-oss":
        closed = (
            0  # there the mark is the head of the final channel, which an answer without reasoning has too
        )
    called_at = next((place for place in places if output_ids[place] in tokens.tool_calls), None)
    calls_tool = called_at is not None
    if think is Think.NONE:
        return Reading(think, closed, None, slice(0, None), calls_tool)
    if closed:
        end = _find(output_ids, places, tokens.closes)
        content: slice | None = slice(end + len(tokens.closes), None)
    elif called_at is not None:
        end, content = called_at, slice(called_at, None)
    else:
        end, content = len(output_ids), None
    return Reading(think, closed, slice(begin, end), content, calls_tool)


def status_of(reading: Reading, finish: FinishReason) -> RecordStatus:
    """What kind of answer this is."""
    thinks = reading.think is not Think.NONE
    match finish:
        case FinishReason.REPETITION:
            return RecordStatus.REPETITION
        case FinishReason.LENGTH:
            open_still = thinks and reading.closed == 0
            return RecordStatus.TRUNCATED_REASONING if open_still else RecordStatus.TRUNCATED
        case FinishReason.STOP | FinishReason.TOOL_CALLS:
            if reading.closed == int(thinks):
                return RecordStatus.OK
            called = reading.calls_tool or finish is FinishReason.TOOL_CALLS
            return RecordStatus.OK if thinks and reading.closed == 0 and called else RecordStatus.MALFORMED


def _find(ids: list[int], places: Sequence[int], mark: tuple[int, ...]) -> int:
    """The first place where `mark` stands, -1 when there is none."""
    for place in places:
        if _stands(ids, place, mark):
            return place
    return -1


def _stands(ids: list[int], place: int, mark: tuple[int, ...]) -> bool:
    return ids[place] == mark[0] and (len(mark) == 1 or tuple(ids[place : place + len(mark)]) == mark)
