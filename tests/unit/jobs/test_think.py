"""Reading answers by their think tokens, family by family."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from draftmill_api.record import FinishReason, RecordStatus, Think
from draftmill_jobs.model.think import ThinkTokens, read_answer, status_of, think_tokens


@dataclass
class Vocabulary:
    """A tokenizer by its special tokens."""

    ids: dict[str, int]
    template: str = "{{ '<think>' }}"
    words: dict[str, list[int]] = field(default_factory=dict)

    def token_id(self, token: str) -> int | None:
        return self.ids.get(token)

    def encode_plain(self, text: str) -> list[int]:
        return self.words[text]


KIMI = Vocabulary(
    {"<|im_middle|>": 163601, "<think>": 163606, "</think>": 163607, "<|tool_calls_section_begin|>": 163595}
)
DEEPSEEK = Vocabulary(
    {"<think>": 128798, "</think>": 128799, "<｜Assistant｜>": 128804, "<｜tool▁calls▁begin｜>": 128806}  # noqa: RUF001
)
QWEN = Vocabulary({"<think>": 151667, "</think>": 151668, "<|im_start|>": 151644, "<tool_call>": 151657})
GPT_OSS = Vocabulary(
    {"<|channel|>": 200005, "<|message|>": 200008, "<|call|>": 200012},
    words={"analysis": [35644], "final": [17196]},
)
FAMILIES = {
    "kimi-k2": (KIMI, (163606,), (163607,), {163595}),
    "deepseek-r1": (DEEPSEEK, (128798,), (128799,), {128806}),
    "qwen3": (QWEN, (151667,), (151668,), {151657}),
    "gpt-oss": (GPT_OSS, (200005, 35644), (200005, 17196), {200012}),
    "think-tags": (Vocabulary({"<think>": 5, "</think>": 6}), (5,), (6,), set()),
    "none": (Vocabulary({"<|im_start|>": 1}), (), (), set()),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_family_and_its_ids_come_from_the_models_own_vocabulary(family: str) -> None:
    vocabulary, opens, closes, calls = FAMILIES[family]
    assert think_tokens(vocabulary) == ThinkTokens(family, opens, closes, frozenset(calls))


def test_a_model_that_reserves_think_tokens_but_never_uses_them_has_none() -> None:
    instruct = Vocabulary({**QWEN.ids}, template="{{ messages }}")
    assert think_tokens(instruct).family == "none"


O, C, TOOL, END = 163606, 163607, 163595, 163586  # noqa: E741 - open, close
K = think_tokens(KIMI)
HARMONY = think_tokens(GPT_OSS)
A, F, M = [200005, 35644], [200005, 17196], [200008]
STOP, LENGTH, CALLS, REPEATS = (
    FinishReason.STOP,
    FinishReason.LENGTH,
    FinishReason.TOOL_CALLS,
    FinishReason.REPETITION,
)
OK, MALFORMED = RecordStatus.OK, RecordStatus.MALFORMED
ANSWERS = {
    "k2.5, open in prompt": (K, [7, O], [1, 2, C, 3, END], STOP, Think.OPEN_IN_PROMPT, OK, [1, 2], [3, END]),
    "k2.5, thinking off": (K, [O, C], [3, END], STOP, Think.NONE, OK, None, [3, END]),
    "k2-thinking": (K, [7, 8], [O, 1, C, 3, END], STOP, Think.IN_OUTPUT, OK, [1], [3, END]),
    "history with think tokens": (K, [O, C, 9, 7, 8], [O, 1, C, 3], STOP, Think.IN_OUTPUT, OK, [1], [3]),
    "a newline after the opening": (K, [7, O, 198], [1, C, 3], STOP, Think.OPEN_IN_PROMPT, OK, [1], [3]),
    "cut while thinking": (
        K,
        [7, O],
        [1, 2],
        LENGTH,
        Think.OPEN_IN_PROMPT,
        RecordStatus.TRUNCATED_REASONING,
        [1, 2],
        None,
    ),
    "cut after thinking": (
        K,
        [7, O],
        [1, C, 2],
        LENGTH,
        Think.OPEN_IN_PROMPT,
        RecordStatus.TRUNCATED,
        [1],
        [2],
    ),
    "never closed": (K, [7, O], [1, 2, END], STOP, Think.OPEN_IN_PROMPT, MALFORMED, [1, 2, END], None),
    "closed twice": (K, [7, O], [1, C, 2, C], STOP, Think.OPEN_IN_PROMPT, MALFORMED, [1], [2, C]),
    "closed without opening": (K, [7, 8], [1, C, 2], STOP, Think.NONE, MALFORMED, None, [1, C, 2]),
    "tool call inside reasoning": (K, [7, O], [1, TOOL, 2], STOP, Think.OPEN_IN_PROMPT, OK, [1], [TOOL, 2]),
    "finish says tool call": (K, [7, O], [1, 2], CALLS, Think.OPEN_IN_PROMPT, OK, [1, 2], None),
    "repetition": (K, [7, O], [1, 1], REPEATS, Think.OPEN_IN_PROMPT, RecordStatus.REPETITION, [1, 1], None),
    "gpt-oss": (HARMONY, [7], [*A, *M, 1, *F, *M, 2], STOP, Think.IN_OUTPUT, OK, [*M, 1], [*M, 2]),
    "gpt-oss without reasoning": (HARMONY, [7], [*F, *M, 2], STOP, Think.NONE, OK, None, [*F, *M, 2]),
    "gpt-oss cut": (
        HARMONY,
        [7],
        [*A, *M, 1],
        LENGTH,
        Think.IN_OUTPUT,
        RecordStatus.TRUNCATED_REASONING,
        [*M, 1],
        None,
    ),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_an_answer_is_taken_apart_by_its_ids(case: str) -> None:
    tokens, prompt, output, finish, think, status, reasoning, content = ANSWERS[case]
    reading = read_answer(tokens, prompt, output)
    parts = [None if part is None else output[part] for part in (reading.reasoning, reading.content)]
    assert (reading.think, parts) == (think, [reasoning, content])
    assert status_of(reading, finish) is status
