"""The text of an answer is one and the same, whether it comes from the ids or from the server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill_api.record import FinishReason, RecordStatus, Think
from draftmill_jobs.model.answer_text import AnswerReader, ReadAnswer
from draftmill_jobs.model.think import NO_THINKING, think_tokens
from draftmill_jobs.model.tokenizer import Tokenizer
from tests.support.byte_tokenizer import make_byte_tokenizer, streamed_text

STOP, LENGTH = FinishReason.STOP, FinishReason.LENGTH
LONG = "it thinks of this and of that for a while, and then of something else " * 4


@dataclass
class Counting:
    """A tokenizer that remembers how many ids were decoded at once."""

    tokenizer: Tokenizer
    decoded: list[int] = field(default_factory=list)

    def decode(self, ids: list[int]) -> str:
        self.decoded.append(len(ids))
        return self.tokenizer.decode(ids)

    def decode_plain(self, ids: list[int]) -> str:
        self.decoded.append(len(ids))
        return self.tokenizer.decode_plain(ids)

    @property
    def added_ids(self) -> frozenset[int]:
        return self.tokenizer.added_ids


@dataclass
class Bench:
    """A model's tokenizer and a reader of its answers."""

    tokenizer: Tokenizer
    thinks: bool = True

    def __post_init__(self) -> None:
        self.counting = Counting(self.tokenizer)
        think = think_tokens(self.tokenizer) if self.thinks else NO_THINKING
        self.reader = AnswerReader(think, self.counting, {self.end})
        self.counting.decoded.clear()

    @property
    def end(self) -> int:
        return self.id("<|im_end|>")

    def id(self, mark: str) -> int:
        found = self.tokenizer.token_id(mark)
        assert found is not None
        return found

    def read(
        self,
        ids: list[int],
        said: str | None,
        *,
        prompt: tuple[int, ...] = (),
        finish: FinishReason = STOP,
    ) -> ReadAnswer:
        return self.reader.read(list(prompt), ids, finish, said)

    def ids(self, text: str) -> list[int]:
        return self.tokenizer.encode_plain(text)


@pytest.fixture(scope="module", params=[True, False], ids=["special marks", "marks as text"])
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return make_byte_tokenizer(tmp_path_factory.mktemp("tokenizer"), marks_are_special=request.param)


@pytest.fixture
def bench(tokenizer: Tokenizer) -> Bench:
    return Bench(tokenizer)


def test_a_servers_text_is_kept_and_only_its_ends_and_marks_are_decoded(bench: Bench) -> None:
    said = f"{LONG}</think>\n\n{LONG}"
    read = bench.read([*bench.ids(said), bench.end], said, prompt=(bench.id("<think>"),))
    assert read.text is said
    assert max(bench.counting.decoded) <= 16
    assert (read.think, read.status) == (Think.OPEN_IN_PROMPT, RecordStatus.OK)
    assert (read.reasoning, read.content) == (LONG.strip(), LONG.strip())


SAID: dict[str, Callable[[str], str | None]] = {
    "nothing": lambda _: None,
    "markers left out": lambda text: text.replace("</think>", ""),
    "spaces put beside markers": lambda text: text.replace("</think>", " </think> "),
    "its reasoning cut out": lambda text: text.partition("</think>")[2],
    "its end lost": lambda text: text[:-3],
    "its beginning lost": lambda text: text[3:],
    "a marker more": lambda text: f"{text[:200]}</think>{text[200:]}",
    "half characters": lambda text: text.replace("while", "\ufffd"),
    "something else": lambda _: "Internal detokeniser error",
    "nothing at all": lambda _: "",
}


@pytest.mark.parametrize("said", SAID.values(), ids=SAID.keys())
def test_a_text_that_is_not_that_of_the_ids_is_not_kept(
    bench: Bench, said: Callable[[str], str | None]
) -> None:
    text = f"{LONG}</think>\n\n{LONG}"
    read = bench.read([*bench.ids(text), bench.end], said(text), prompt=(bench.id("<think>"),))
    assert read.text == text
    assert (read.reasoning, read.content) == (LONG.strip(), LONG.strip())


def test_reasoning_that_spells_out_a_mark_is_taken_apart_by_its_ids(bench: Bench) -> None:
    spelled = [*bench.ids("</th"), *bench.ids("ink>")]
    ids = [*bench.ids(LONG), *spelled, *bench.ids(" is a mark"), bench.id("</think>"), *bench.ids("yes")]
    said = bench.tokenizer.decode(ids)
    read = bench.read([*ids, bench.end], said, prompt=(bench.id("<think>"),))
    assert said.count("</think>") == 2
    assert (read.text, read.status) == (said, RecordStatus.OK)
    assert (read.reasoning, read.content) == (f"{LONG}</think> is a mark", "yes")


SHAPES = {
    "no reasoning": ([], "the answer", None, "the answer", RecordStatus.OK),
    "opened by the answer": ([], "<think>why</think> so", "why", "so", RecordStatus.OK),
    "opened by the prompt": (["<think>"], "why</think>so", "why", "so", RecordStatus.OK),
    "switched off by the prompt": (["<think>", "</think>"], "so", None, "so", RecordStatus.OK),
    "empty": (["<think>"], "</think>", "", "", RecordStatus.OK),
    "a tool call after it": (
        ["<think>"],
        'why</think><tool_call>{"f": 1}',
        "why",
        '<tool_call>{"f": 1}',
        RecordStatus.OK,
    ),
    "a tool call inside": (
        ["<think>"],
        'why<tool_call>{"f": 1}',
        "why",
        '<tool_call>{"f": 1}',
        RecordStatus.OK,
    ),
    "never closed": (["<think>"], "why, oh why", "why, oh why", None, RecordStatus.MALFORMED),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_reasoning_in_every_shape(bench: Bench, shape: str) -> None:
    marks, text, reasoning, content, status = SHAPES[shape]
    if content is not None and not bench.tokenizer.decode_plain([bench.id("<tool_call>")]):
        content = content.replace("<tool_call>", "")
    prompt = tuple(bench.id(mark) for mark in marks)
    read = bench.read([*bench.ids(text), bench.end], None, prompt=prompt)
    assert (read.text, read.status) == (text, status)
    assert (read.reasoning, read.content) == (reasoning, content)


def test_reasoning_that_the_limit_cut_has_no_content(bench: Bench) -> None:
    read = bench.read(bench.ids(LONG), LONG, prompt=(bench.id("<think>"),), finish=LENGTH)
    assert (read.reasoning, read.content) == (LONG.strip(), None)
    assert (read.text, read.status) == (LONG, RecordStatus.TRUNCATED_REASONING)


def test_half_a_character_at_the_limit_is_in_the_text_as_it_is_in_the_ids(bench: Bench) -> None:
    ids = bench.ids(f"{LONG}🙂🙂🙂🙂")
    while not (text := bench.tokenizer.decode(ids)).endswith("\ufffd"):
        ids.pop()
    said = streamed_text(bench.tokenizer, [], ids)
    assert said != text
    assert bench.read(ids, said, finish=LENGTH).text == text


def test_the_stop_token_is_in_the_ids_and_not_in_the_text(bench: Bench) -> None:
    assert bench.read([*bench.ids("so"), bench.end], None).text == "so"
    assert bench.read([bench.end], "").text == ""
    cut = bench.read([*bench.ids("so"), bench.end], None, finish=LENGTH)
    assert cut.text == "so<|im_end|>", "the limit ended it: what looks like a stop token is its own word"


def test_special_tokens_stand_in_the_text_and_not_in_what_people_read(tokenizer: Tokenizer) -> None:
    bench = Bench(tokenizer, thinks=False)
    read = bench.read(bench.ids("a<|im_start|>b"), None)
    assert (read.text, read.content, read.reasoning) == ("a<|im_start|>b", "ab", None)


@given(st.data())
def test_however_the_text_came_about_the_record_is_the_same(
    tokenizer: Tokenizer, data: st.DataObject
) -> None:
    bench = Bench(tokenizer)
    words = st.sampled_from(bench.ids(f"{LONG}</think>"))
    tokens = data.draw(st.sampled_from([words, words | st.integers(0, bench.end + 4)]))
    ids = data.draw(st.lists(tokens, min_size=1, max_size=80)) + data.draw(st.sampled_from([[], [bench.end]]))
    prompt = data.draw(st.sampled_from([[], [bench.id("<think>")], bench.ids("€")[:1]]))
    finish = data.draw(st.sampled_from(FinishReason))
    spoken = ids[:-1] if finish is not LENGTH and ids[-1] == bench.end else ids
    said = streamed_text(tokenizer, prompt, spoken, special=data.draw(st.booleans()))
    assert bench.reader.read(prompt, ids, finish, said) == bench.reader.read(prompt, ids, finish, None)
