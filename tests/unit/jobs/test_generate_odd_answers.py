"""Whatever JSON a server sends is an answer or a failure with a name, never a traceback."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from draftmill_api.v1alpha1.generation import Api
from draftmill_api.v1alpha1.shared import Engine
from draftmill_jobs.engines.base import Answer, Ask, Route, StreamingRoute
from draftmill_jobs.engines.failures import FailureKind, RequestFailedError, Verdict, failure_from_status
from draftmill_jobs.engines.routes import route_for

ASK = Ask("r", "m", [], None, {}, [1, 2], {"max_completion_tokens": 4})
ROUTES = [route_for(engine, api) for engine in Engine for api in (Api.GENERATE, Api.CHAT)]
FIELDS = [
    "choices",
    "message",
    "content",
    "reasoning",
    "tool_calls",
    "text",
    "delta",
    "usage",
    "finish_reason",
    "token_ids",
    "response_token_ids",
    "prompt_token_ids",
    "prompt_tokens",
    "completion_tokens",
    "meta_info",
    "output_ids",
    "type",
]

GOOD = {
    "choices": [
        {
            "finish_reason": "stop",
            "token_ids": [5, 6],
            "response_token_ids": [5, 6],
            "message": {"content": "t"},
            "text": "t",
        }
    ],
    "prompt_token_ids": [1, 2],
    "usage": {"prompt_tokens": 2, "completion_tokens": 2},
    "text": "t",
    "output_ids": [5, 6],
    "meta_info": {"finish_reason": {"type": "stop"}, "prompt_tokens": 2, "completion_tokens": 2},
}
CHUNK = {"choices": [{"delta": {"content": "t"}, "token_ids": [5]}], "output_ids": [5], "text": "t"}

leaves = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["stop", "abort"])
)
values = st.recursive(
    leaves, lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(FIELDS), inner), max_leaves=8
)
bodies = st.dictionaries(st.sampled_from(FIELDS), values)


def places(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values within a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place, *(found for key, item in inner for found in places(item, (*place, key)))]


def changed(body: Any, place: tuple[Any, ...], value: Any) -> Any:
    """A copy with another value at a place."""
    if not place:
        return value
    copy = body.copy()
    copy[place[0]] = changed(body[place[0]], place[1:], value)
    return copy


def read(route: Route, body: dict[str, Any]) -> Answer | RequestFailedError:
    try:
        return route.answer(ASK, body)
    except RequestFailedError as failure:
        return failure


def read_stream(route: StreamingRoute, events: list[dict[str, Any]]) -> Answer | RequestFailedError:
    try:
        return route.answer(ASK, route.merge(events))
    except RequestFailedError as failure:
        return failure


def assert_right(read: Answer | RequestFailedError) -> None:
    if isinstance(read, RequestFailedError):
        assert read.verdict is Verdict.RETRY
    else:
        assert all(type(token) is int for token in [*read.prompt_ids, *read.output_ids])
        assert read.output_ids
        assert read.text is None or isinstance(read.text, str)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: type(route).__name__)
def test_a_good_answer_is_read(route: Route) -> None:
    answer = read(route, GOOD)
    assert isinstance(answer, Answer)
    assert (answer.prompt_ids, answer.output_ids, answer.text) == ([1, 2], [5, 6], "t")


ODD = [
    ("message", ("choices", 0, "message"), "text"),
    ("usage", ("usage",), [1]),
    ("a count", ("usage", "completion_tokens"), "2"),
    ("an id", ("choices", 0, "token_ids", 1), None),
    ("a negative id", ("choices", 0, "token_ids", 1), -1),
    ("a flag for an id", ("choices", 0, "token_ids", 1), True),
    ("a finish reason", ("choices", 0, "finish_reason"), ["stop"]),
]


@pytest.mark.parametrize(("place", "value"), [case[1:] for case in ODD], ids=[case[0] for case in ODD])
def test_an_odd_type_is_an_invalid_response(place: tuple[Any, ...], value: Any) -> None:
    with pytest.raises(RequestFailedError) as failed:
        route_for(Engine.VLLM, Api.CHAT).answer(ASK, changed(GOOD, place, value))
    assert failed.value.kind is FailureKind.INVALID_RESPONSE


@given(st.sampled_from(ROUTES), bodies)
def test_any_json_is_an_answer_or_a_failure(route: Route, body: dict[str, Any]) -> None:
    assert_right(read(route, body))


@given(st.sampled_from(ROUTES), st.sampled_from(places(GOOD)[1:]), values)
def test_a_good_answer_with_any_one_value_changed_is_an_answer_or_a_failure(
    route: Route, place: tuple[Any, ...], value: Any
) -> None:
    assert_right(read(route, changed(GOOD, place, value)))


streams = st.sampled_from([route for route in ROUTES if isinstance(route, StreamingRoute)])
chunks = bodies | st.builds(changed, st.just(CHUNK), st.sampled_from(places(CHUNK)[1:]), values)


@given(streams, st.lists(chunks | st.just(CHUNK) | st.just(GOOD), max_size=4))
@example(ROUTES[0], [{"choices": ["x"]}])
def test_any_stream_of_json_is_an_answer_or_a_failure(
    route: StreamingRoute, events: list[dict[str, Any]]
) -> None:
    assert_right(read_stream(route, events))


@given(st.integers(100, 599), st.binary() | values.map(lambda value: json.dumps(value).encode()))
def test_any_error_answer_is_a_failure(status: int, body: bytes) -> None:
    failure = failure_from_status(status, body)
    assert len(failure.message) < 700
