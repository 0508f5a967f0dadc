"""Turns are asked one after another, each with the model's own answers before it."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill_api.record import DeadLetter, RecordStatus
from draftmill_jobs.generate.conversations import (
    Answered,
    Conversations,
    Dead,
    MissingTurnError,
    NotAdmitted,
    Outcome,
    Row,
    Steps,
    outcome_of,
)
from draftmill_jobs.prompts.rows import Question, SourceRow
from draftmill_jobs.prompts.shapes import Prompt, read_turns
from tests.support.records import record

Messages = list[dict[str, Any]]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def conversation(*messages: dict[str, Any], position: int = 0) -> list[SourceRow]:
    """The turns of a conversation; a key is what stands before the answer."""
    return [
        SourceRow(key_of(prompt), position, prompt, turn=prompt.turn)
        for prompt in read_turns({"messages": list(messages)})
    ]


def key_of(prompt: Prompt) -> str:
    return "|".join(str(message["content"]) for message in prompt.messages)


def said(question: Question, text: str, status: RecordStatus = RecordStatus.OK) -> Answered:
    answer = assistant(text) if status is RecordStatus.OK else None
    return Answered(question.id, question.prompt.messages, answer, status)


def contents(question: Question) -> list[str]:
    return [message["content"] for message in question.prompt.messages]


TALK = conversation(user("u0"), assistant("a0"), user("u1"), assistant("a1"), user("u2"))
ALL: list[list[int] | None] = [[0], [0], [0]]


def test_the_models_own_answers_take_the_place_of_those_in_the_source() -> None:
    talks = Conversations({}, {})
    asked = []
    steps = talks.open(TALK, ALL)
    while steps.ready:
        (question,) = steps.ready
        asked.append(contents(question))
        steps = talks.settle(Row(question.key, 0), said(question, f"own {len(asked)}"))
    assert asked == [["u0"], ["u0", "own 1", "u1"], ["u0", "own 1", "u1", "own 2", "u2"]]
    assert talks.waiting == 0


def test_each_sample_is_a_conversation_of_its_own() -> None:
    talks = Conversations({}, {})
    first = talks.open(TALK[:2], [[0, 1], [0, 1]]).ready
    seconds = [
        talks.settle(Row(each.key, each.sample), said(each, f"own {each.sample}")).ready for each in first
    ]
    assert [contents(question) for (question,) in seconds] == [["u0", "own 0", "u1"], ["u0", "own 1", "u1"]]
    assert [question.id for (question,) in seconds] == [f"{TALK[1].key}-t1", f"{TALK[1].key}-t1-s1"]


def test_one_goes_on_from_what_an_earlier_attempt_has_settled() -> None:
    earlier = Answered("x", [user("u0")], assistant("own"), RecordStatus.OK)
    talks = Conversations({}, {Row(TALK[0].key, 0): earlier})
    (question,) = talks.open(TALK, [[], [0], [0]]).ready
    assert contents(question) == ["u0", "own", "u1"]


@pytest.mark.parametrize("settled_first", [True, False])
def test_conversations_that_begin_alike_share_the_answers_to_it(settled_first: bool) -> None:
    one, other = (
        conversation(user("u0"), assistant("a"), user("u1")),
        conversation(user("u0"), assistant("a"), user("v1"), position=1),
    )
    talks = Conversations({one[0].key: 1}, {})
    (root,) = talks.open(one, [[0], [0]]).ready
    ready: list[Question] = []
    if not settled_first:
        ready += talks.open(other, [None, [0]]).ready
        assert talks.branching == 1, "as long as it waits, it takes room of what is read ahead"
    ready += talks.settle(Row(root.key, 0), said(root, "own")).ready
    if settled_first:
        ready += talks.open(other, [None, [0]]).ready
    assert sorted(contents(question)[-1] for question in ready) == ["u1", "v1"]
    assert all(contents(question)[:2] == ["u0", "own"] for question in ready)
    assert talks.branching == 0
    with pytest.raises(MissingTurnError):  # what nobody needs any more is forgotten
        talks.open(conversation(user("u0"), assistant("a"), user("w1"), position=2), [None, [0]])


def test_a_call_of_a_tool_stays_for_the_result_is_that_of_this_call() -> None:
    call = {"role": "assistant", "content": "call", "tool_calls": [{"id": "1"}]}
    turns = conversation(
        user("u0"), call, {"role": "tool", "content": "4"}, assistant("a"), user("u1"), assistant("b")
    )
    talks = Conversations({}, {})
    (first,) = talks.open(turns, [[0], [0], [0]]).ready
    (second,) = talks.settle(Row(first.key, 0), said(first, "another call")).ready
    (third,) = talks.settle(Row(second.key, 0), said(second, "own")).ready
    assert contents(second) == ["u0", "call", "4"]
    assert second.prompt.messages[1] == call
    assert contents(third) == ["u0", "call", "4", "own", "u1"]


@pytest.mark.parametrize("permanent", [True, False])
def test_turns_after_a_dead_one_are_dead_of_the_same_cause(permanent: bool) -> None:
    talks = Conversations({}, {})
    (first,) = talks.open(TALK, ALL).ready
    steps = talks.settle(Row(first.key, 0), Dead(first.id, "aborted", permanent))
    assert [dead.row for dead in steps.dead] == TALK[1:]
    assert {dead.cause for dead in steps.dead} == {Dead(first.id, "aborted", permanent)}
    assert (steps.ready, talks.waiting) == ([], 0)


def test_nobody_goes_on_from_an_answer_that_ended_inside_its_reasoning() -> None:
    talks = Conversations({}, {})
    (first,) = talks.open(TALK, ALL).ready
    steps = talks.settle(Row(first.key, 0), said(first, "", RecordStatus.TRUNCATED_REASONING))
    assert {dead.cause for dead in steps.dead} == {Dead(first.id, "truncated_reasoning", permanent=True)}
    assert len(steps.dead) == 2


def test_turns_after_one_that_was_left_out_are_left_out() -> None:
    talks = Conversations({}, {})
    (first,) = talks.open(TALK, ALL).ready
    steps = talks.settle(Row(first.key, 0), NotAdmitted())
    assert (steps.not_admitted, steps.ready, steps.dead, talks.waiting) == (2, [], [], 0)


def test_a_row_without_a_prompt_has_one_turn_that_is_not_asked() -> None:
    row = SourceRow("k", 3, None, "nothing", turn=0)
    steps = Conversations({}, {}).open([row], [[0, 1]])
    assert (steps.unusable, steps.ready) == ([(row, 0), (row, 1)], [])


RECORD = record(7, "so")
ASKED = RECORD.messages
LETTER = DeadLetter(
    id="d",
    prompt_key=None,
    sample_id=0,
    dataset="A",
    sample=0,
    reason="aborted",
    message="m",
    permanent=False,
    tries=4,
    created="",
    expected_tokens=500,
    prompt_bytes=60,
)
PASSED_ON: list[tuple[dict[str, Any], dict[str, Any] | None]] = [
    ({}, assistant("so")),
    ({"reasoning": "why"}, {**assistant("so"), "reasoning_content": "why"}),
    ({"reasoning": ""}, assistant("so")),
    ({"status": RecordStatus.TRUNCATED}, assistant("so")),
    ({"content": ""}, None),
    ({"content": None}, None),
    ({"status": RecordStatus.MALFORMED}, None),
    ({"status": RecordStatus.REPETITION}, None),
]


@pytest.mark.parametrize(("change", "message"), PASSED_ON)
def test_an_answer_is_passed_on_as_content_with_its_reasoning_beside_it(
    change: dict[str, Any], message: dict[str, Any] | None
) -> None:
    settled = RECORD.model_copy(update=change)
    assert outcome_of(settled) == Answered(settled.id, ASKED, message, settled.status)


def test_of_a_dead_letter_its_cause_is_passed_on() -> None:
    assert outcome_of(LETTER) == Dead("d", "aborted", permanent=False)


class Played:
    """A dataset played through many attempts: rows settle in any order, and any instant may be the last."""

    def __init__(self, talks: list[list[SourceRow]], samples: int, rng: random.Random) -> None:
        self.talks = talks
        self.samples = samples
        self.rng = rng
        self.settled: dict[Row, Outcome] = {}
        self.asked: Counter[Row] = Counter()
        self.rows = {Row(row.key, sample) for turns in talks for row in turns for sample in range(samples)}

    def attempt(self, most: int) -> None:
        met: set[str] = set()
        opened = [(turns, self._wanted(turns, met)) for turns in self.talks]
        talks = Conversations(self._branches(opened), self._earlier(opened))
        flying: list[Question] = []
        coming = list(opened)
        while (coming or flying) and most:
            if coming and (not flying or self.rng.random() < 0.5):
                self._take(talks.open(*coming.pop(0)), flying)
                continue
            most -= 1
            question = flying.pop(self.rng.randrange(len(flying)))
            row = Row(question.key, question.sample)
            self.asked[row] += 1
            self._settle(row, self._answer(question))
            self._take(talks.settle(row, self.settled[row]), flying)
        assert not most or talks.waiting == 0

    def _take(self, steps: Steps, flying: list[Question]) -> None:
        flying += steps.ready
        for dead in steps.dead:
            self._settle(Row(dead.row.key, dead.sample), dead.cause)

    def _settle(self, row: Row, outcome: Outcome) -> None:
        assert row not in self.settled, "a row is settled once"
        self.settled[row] = outcome

    def _answer(self, question: Question) -> Outcome:
        if self.rng.random() < 0.1:
            return Dead(question.id, "aborted", permanent=True)
        turns = question.prompt.messages[1::2]
        assert turns == [assistant(f"own {question.sample}")] * len(turns), "with this sample's own answers"
        assert [key.split("|")[-1] for key in question.key.split("|")][::2] == contents(question)[::2]
        return said(question, f"own {question.sample}")

    def _wanted(self, turns: list[SourceRow], met: set[str]) -> list[list[int] | None]:
        wanted: list[list[int] | None] = []
        for row in turns:
            is_new = row.key not in met
            met.add(row.key)
            to_ask = [sample for sample in range(self.samples) if Row(row.key, sample) not in self.settled]
            wanted.append(to_ask if is_new else None)
        return wanted

    def _branches(self, opened: list[tuple[list[SourceRow], list[list[int] | None]]]) -> Counter[str]:
        return Counter(
            turns[place - 1].key
            for turns, wanted in opened
            for place in range(1, len(turns))
            if wanted[place] and wanted[place - 1] is None
        )

    def _earlier(self, opened: list[tuple[list[SourceRow], list[list[int] | None]]]) -> dict[Row, Outcome]:
        needed = {
            Row(turns[place - 1].key, sample)
            for turns, wanted in opened
            for place in range(1, len(turns))
            for sample in wanted[place] or ()
        }
        return {row: self.settled[row] for row in needed if row in self.settled}


@given(
    st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=4), min_size=1, max_size=8),
    st.integers(1, 2),
    st.lists(st.integers(0, 12), max_size=4),
    st.randoms(use_true_random=False),
)
def test_through_any_number_of_attempts_each_turn_is_asked_once_with_its_own_history(
    shapes: list[list[int]], samples: int, kills: list[int], rng: random.Random
) -> None:
    talks = [
        conversation(
            *(message for number in shape for message in (user(f"u{number}"), assistant("a"))),
            position=position,
        )
        for position, shape in enumerate(shapes)
    ]
    played = Played(talks, samples, rng)
    for most in [*kills, 1000]:
        played.attempt(most)
    assert set(played.settled) == played.rows
    assert set(played.asked.values()) == {1}
