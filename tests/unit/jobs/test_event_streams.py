"""The events of a streamed answer, however the network cuts them up."""

from __future__ import annotations

import itertools
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill_jobs.engines.base import Ask, StreamingRoute
from draftmill_jobs.engines.events import EventStream
from draftmill_jobs.engines.failures import FailureKind, RequestFailedError
from draftmill_jobs.engines.sglang import SglangGenerate
from draftmill_jobs.engines.vllm import VllmChat

ASK = Ask("r", "m", [], None, {}, [1, 2], {})
IDS = [7, 8, 9, 10]


def streamed(events: list[dict[str, Any]]) -> bytes:
    return b"".join(b"data: %b\n\n" % orjson.dumps(event) for event in events) + b"data: [DONE]\n\n"


def sglang_events(*, increments: bool) -> list[dict[str, Any]]:
    """What `/generate` says token by token."""
    last = len(IDS)
    return [
        {
            "output_ids": IDS[n - 1 : n] if increments else IDS[:n],
            "text": "x" if increments else "x" * n,
            "prompt_token_ids": [1, 2] if n == 1 else None,
            "meta_info": {
                "completion_tokens": n,
                "prompt_tokens": 2,
                "finish_reason": {"type": "stop"} if n == last else None,
            },
        }
        for n in range(1, last + 1)
    ]


def read(route: StreamingRoute, data: bytes, cuts: list[int] | None = None) -> list[dict[str, Any]]:
    stream = EventStream(route.replaces)
    edges = [0, *sorted(cuts or []), len(data)]
    for begin, end in itertools.pairwise(edges):
        stream.take(data[begin:end])
    return stream.events()


@given(st.lists(st.integers(0, 200)))
def test_the_events_are_the_same_wherever_the_network_cuts_them(cuts: list[int]) -> None:
    events = [{"choices": [{"index": 0, "token_ids": [token]}]} for token in IDS]
    assert read(VllmChat(), streamed(events), cuts) == events


def test_of_events_that_each_hold_the_whole_only_the_last_is_kept() -> None:
    """Else an answer of n tokens would take memory of n * n."""
    events = read(SglangGenerate(), streamed(sglang_events(increments=False)))
    assert len(events) == 2, "the first has the prompt's ids, the last the answer's"


@pytest.mark.parametrize("increments", [True, False])
def test_what_sglang_streams_is_the_same_answer_in_either_mode(*, increments: bool) -> None:
    route = SglangGenerate()
    answer = route.answer(ASK, route.merge(read(route, streamed(sglang_events(increments=increments)))))
    assert (answer.output_ids, answer.text) == (IDS, "xxxx")


def test_a_stream_without_its_end_is_a_lost_connection() -> None:
    data = streamed([{"choices": []}]).removesuffix(b"data: [DONE]\n\n")
    with pytest.raises(RequestFailedError, match="in the middle of the answer") as failed:
        read(VllmChat(), data)
    assert failed.value.kind is FailureKind.CONNECTION_LOST


def test_an_error_in_the_stream_is_told_at_once() -> None:
    data = streamed([{"error": {"message": "engine is busy", "code": 503}}])
    with pytest.raises(RequestFailedError, match="engine is busy") as failed:
        EventStream(VllmChat().replaces).take(data)
    assert failed.value.kind is FailureKind.OVERLOADED
