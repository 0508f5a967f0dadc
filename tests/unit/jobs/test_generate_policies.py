"""The generator's small policies: pure, one table each."""

from __future__ import annotations

import math
import random
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill_api.v1alpha1.shared import Engine
from draftmill_jobs.engines.failures import (
    FailureKind,
    Verdict,
    failure_from_status,
    read_error,
    told_failure,
)
from draftmill_jobs.engines.metrics import ServerFigures, read_figures
from draftmill_jobs.generate.budget import Admission, TokenBudget
from draftmill_jobs.generate.life import Flight, Life
from draftmill_jobs.generate.retry import backoff
from draftmill_jobs.shared.formats import clock_time, short_time, two_digits

BODIES = {
    "vllm": (b'{"error":{"message":"m","type":"t","param":"p","code":400}}', "m", "p"),
    "sglang flat": (b'{"object":"error","message":"m","type":"t","param":null,"code":400}', "m", ""),
    "sglang generate": (b'{"error":{"message":"m"}}', "m", ""),
    "sglang generate, text": (b'{"error":"m"}', "m", ""),
    "fastapi": (b'{"detail":"m"}', "m", ""),
    "fastapi, list": (b'{"detail":[{"msg":"m"}]}', '[{"msg":"m"}]', ""),
    "html": (b"<html><head><style>x{}</style></head><body><h1>m</h1></body></html>", "m", ""),
    "empty": (b"", "", ""),
    "not utf-8": (b"\xff m", "\ufffd m", ""),
}


@pytest.mark.parametrize(("body", "message", "parameter"), BODIES.values(), ids=BODIES.keys())
def test_the_error_bodies_of_all_servers_are_read(body: bytes, message: str, parameter: str) -> None:
    error = read_error(body)
    assert (error.message, error.parameter) == (message, parameter)


STATUSES = [
    (400, FailureKind.BAD_REQUEST, Verdict.DEAD),
    (401, FailureKind.UNAUTHORIZED, Verdict.STOP),
    (404, FailureKind.NOT_FOUND, Verdict.STOP),
    (408, FailureKind.TRY_AGAIN, Verdict.RETRY),
    (413, FailureKind.CONTEXT_OVERFLOW, Verdict.DEAD),
    *((status, FailureKind.REFUSED, Verdict.STOP) for status in (402, 405, 407, 415, 418, 421, 431, 451)),
    (422, FailureKind.BAD_REQUEST, Verdict.DEAD),
    (429, FailureKind.OVERLOADED, Verdict.RETRY),
    (500, FailureKind.SERVER_ERROR, Verdict.RETRY),
    (504, FailureKind.PROXY_TIMEOUT, Verdict.RETRY),
    (599, FailureKind.SERVER_ERROR, Verdict.RETRY),
    (302, FailureKind.REFUSED, Verdict.STOP),
]


@pytest.mark.parametrize(("status", "kind", "verdict"), STATUSES)
def test_a_status_tells_what_follows(status: int, kind: FailureKind, verdict: Verdict) -> None:
    failure = failure_from_status(status, b"")
    assert (failure.kind, failure.verdict) == (kind, verdict)


WORDS = {
    "too long, vllm": (
        400,
        b'{"error":{"message":"m","param":"input_tokens"}}',
        FailureKind.CONTEXT_OVERFLOW,
    ),
    "too long, sglang": (
        400,
        b'{"object":"error","message":"Requested token count exceeds the model\'s maximum context length"}',
        FailureKind.CONTEXT_OVERFLOW,
    ),
    "roles": (400, b'{"error":{"message":"System role not supported"}}', FailureKind.TEMPLATE_REFUSED),
    "roles, old sglang": (
        500,
        b'{"object":"error","message":"Conversation roles must alternate"}',
        FailureKind.TEMPLATE_REFUSED,
    ),
    "no memory, sglang": (
        500,
        b'{"error":{"message":"Out of memory even after retracting all other requests"}}',
        FailureKind.OVERLOADED,
    ),
    "dead engine": (
        500,
        b'{"error":{"message":"EngineCore encountered an issue."}}',
        FailureKind.SERVER_ERROR,
    ),
}


@pytest.mark.parametrize(("status", "body", "kind"), WORDS.values(), ids=WORDS.keys())
def test_where_a_status_is_too_little_the_words_tell(status: int, body: bytes, kind: FailureKind) -> None:
    assert failure_from_status(status, body).kind is kind


TOLD: dict[str, tuple[dict[str, Any], FailureKind | None]] = {
    "vllm's event": ({"error": {"message": "m", "code": 400}}, FailureKind.BAD_REQUEST),
    "sglang's event": ({"error": {"message": "queue full", "code": 503}}, FailureKind.OVERLOADED),
    "flat": ({"object": "error", "message": "m", "code": 500}, FailureKind.SERVER_ERROR),
    "a word": ({"error": "boom"}, FailureKind.SERVER_ERROR),
    "a code in words": ({"error": {"message": "m", "code": "server_error"}}, FailureKind.SERVER_ERROR),
    "an answer": ({"choices": [], "error": None}, None),
}


@pytest.mark.parametrize(("payload", "kind"), TOLD.values(), ids=TOLD.keys())
def test_an_answer_of_http_200_may_tell_of_a_failure(
    payload: dict[str, Any], kind: FailureKind | None
) -> None:
    failure = told_failure(payload)
    assert (failure and failure.kind) is kind


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        ("-3", 0.0),
        ("86400", 600.0),
        ("inf", None),
        ("-inf", None),
        ("nan", None),
        ("1e999", None),
        ("Sun, 29 Nov 2026 12:00:30 GMT", 30.0),
        ("Sun, 29 Nov 2026 11:00:00 GMT", 0.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 600.0),
        ("Fri, 31 Dec 99999999999 23:59:59 GMT", None),
        ("soon", None),
        (None, None),
    ],
)
def test_retry_after_is_a_number_or_a_date(header: str | None, seconds: float | None) -> None:
    now = datetime(2026, 11, 29, 12, tzinfo=UTC)
    assert failure_from_status(429, b"", retry_after=header, now=now).retry_after == seconds


@given(st.text() | st.from_regex(r"[A-Z][a-z]{2}, [0-9]{1,12} [A-Z][a-z]{2} [0-9]{1,12} [0-9:+-]*( GMT)?"))
def test_whatever_retry_after_says_the_wait_is_bounded(header: str) -> None:
    wait = failure_from_status(429, b"", retry_after=header).retry_after
    assert wait is None or 0 <= wait <= 600


@given(st.integers(1, 200), st.integers(0, 2**32))
def test_backoff_is_full_jitter_under_a_growing_bound(tries: int, seed: int) -> None:
    assert 0 <= backoff(tries, None, random.Random(seed)) <= min(60, 2 ** min(tries - 1, 6))
    assert backoff(tries, 5.0, random.Random(seed)) >= 5.0


@pytest.mark.parametrize(("tries", "bound"), [(1, 1), (2, 2), (4, 8), (7, 60), (100, 60)])
def test_backoff_is_spread_over_all_of_its_range(tries: int, bound: int) -> None:
    rng = random.Random(1)
    waits = [backoff(tries, None, rng) for _ in range(1000)]
    tenths = Counter(int(10 * wait / bound) for wait in waits)
    assert set(tenths) == set(range(10))
    assert min(tenths.values()) > 50, "none is rare: rows that failed together do not come back together"


BUDGETS = [
    ("no cap", None, {"tokens": 10**9, "promised": 1e9, "in_flight": 9}, Admission.YES),
    ("empty", 1000, {"tokens": 0, "promised": 0.0, "in_flight": 0}, Admission.YES),
    (
        "what is in flight fills it",
        1000,
        {"tokens": 0, "promised": 1000.0, "in_flight": 10},
        Admission.WAIT,
    ),
    ("it turns out short", 1000, {"tokens": 100, "promised": 899.0, "in_flight": 10}, Admission.YES),
    ("nearly full", 1000, {"tokens": 995, "promised": 10.0, "in_flight": 1}, Admission.WAIT),
    ("nearly full, nothing in flight", 1000, {"tokens": 995, "promised": 0.0, "in_flight": 0}, Admission.YES),
    ("full", 1000, {"tokens": 1000, "promised": 30.0, "in_flight": 3}, Admission.NO),
]


@pytest.mark.parametrize(
    ("cap", "state", "expected"), [case[1:] for case in BUDGETS], ids=[c[0] for c in BUDGETS]
)
def test_a_budget_counts_expected_tokens(cap: int | None, state: dict[str, Any], expected: Admission) -> None:
    assert TokenBudget(cap).admits(**state) is expected


class Server:
    """A server's life with three requests that began at 0, 1 and 2 s."""

    def __init__(self) -> None:
        self.flights = [Flight(started, lambda: None) for started in (0.0, 1.0, 2.0)]
        self.life = Life(last_sign=2.0, flights=set(self.flights))


def test_a_server_without_any_sign_loses_its_old_requests() -> None:
    server = Server()
    assert server.life.lost_flights(11.5, limit=10.0) == []
    assert server.life.lost_flights(12.5, limit=10.0) == server.flights
    assert server.life.lost_flights(12.01, limit=10.0) == server.flights


def test_growing_tokens_bytes_and_ends_are_signs() -> None:
    for sign in ("tokens", "byte", "end"):
        server = Server()
        server.life.observe(ServerFigures(generated=5, requests=3), 1.0)
        if sign == "tokens":
            server.life.observe(ServerFigures(generated=6, requests=3), 9.0)
        elif sign == "byte":
            server.life.byte_came(server.flights[0], 9.0)
        else:
            server.life.ended(server.flights.pop(), 9.0)
        assert server.life.lost_flights(18.0, limit=10.0) == [], sign
        assert server.life.lost_flights(19.5, limit=10.0) == server.flights, sign


def test_a_request_that_the_server_does_not_have_is_lost_though_others_go_on() -> None:
    server = Server()
    for now in range(3, 30):
        server.life.observe(ServerFigures(generated=float(now), requests=2), float(now))
    assert server.life.lost_flights(12.0, limit=10.0) == []
    assert server.life.lost_flights(29.0, limit=10.0) == server.flights[:1], "the oldest"
    server.life.observe(ServerFigures(generated=40, requests=3), 30.0)
    assert server.life.lost_flights(30.0, limit=10.0) == [], "no longer short"


def test_a_stream_that_stops_is_lost_though_others_go_on() -> None:
    server = Server()
    server.life.byte_came(server.flights[0], 3.0)
    server.life.byte_came(server.flights[1], 14.0)
    assert server.life.lost_flights(14.5, limit=10.0) == server.flights[:1]


def test_server_figures_are_summed_over_labels() -> None:
    page = (
        "# HELP vllm:generation_tokens_total x\n"
        'vllm:generation_tokens_total{engine="0"} 10.0\nvllm:generation_tokens_total{engine="1"} 5.0\n'
        'vllm:num_requests_running{engine="0"} 2.0\nvllm:num_requests_waiting{engine="0"} 1.0\n'
        'vllm:num_requests_waiting_by_reason{reason="x"} 9.0\n'
        'vllm:num_preemptions_total{engine="0"} 3.0\nvllm:num_preemptions_total{engine="1"} 1.0\n'
    )
    assert read_figures(Engine.VLLM, page) == ServerFigures(15.0, 3.0, waiting=1.0, preemptions=4.0)
    assert read_figures(Engine.SGLANG, page) is None


NAMES = ("vllm:generation_tokens_total", "vllm:num_requests_running", "vllm:num_requests_waiting")


def test_timestamps_are_no_values() -> None:
    values = dict(zip(NAMES, (7, 2, 1), strict=True))
    page = "".join(f'{name}{{model="a b"}} {value} 1700000000000\n' for name, value in values.items())
    assert read_figures(Engine.VLLM, page) == ServerFigures(7.0, 3.0, waiting=1.0)


@pytest.mark.parametrize(
    "garbled",
    [
        f"{NAMES[0]} many\n",
        f"{NAMES[0]}\n",
        f'{NAMES[0]}{{engine="0 5\n',
        f"{NAMES[0]}{{}}\n",
        f"{NAMES[1]} NaN\n",
        f"{NAMES[1]} +Inf\n",
    ],
)
def test_a_garbled_page_has_no_figures(garbled: str) -> None:
    good = "".join(f"{name} 1\n" for name in NAMES)
    assert read_figures(Engine.VLLM, good + garbled) is None


def test_a_line_of_something_else_may_be_garbled() -> None:
    good = "".join(f"{name} 1\n" for name in NAMES)
    assert read_figures(Engine.VLLM, "x{\n" + good) == ServerFigures(1.0, 2.0, waiting=1.0)


@given(st.lists(st.sampled_from([*NAMES, "{", "}", '"', " ", "\n", "1", "=", ","]) | st.text()))
def test_any_page_gives_figures_or_none(parts: list[str]) -> None:
    figures = read_figures(Engine.VLLM, "".join(parts))
    assert figures is None or math.isfinite(figures.generated + figures.requests)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.634, "0.63"), (1.14, "1.1"), (12.3, "12"), (123.4, "120"), (0.0456, "0.046")],
)
def test_rates_have_two_digits(value: float, text: str) -> None:
    assert two_digits(value) == text


@pytest.mark.parametrize(
    ("seconds", "log", "status"),
    [
        (45, "45s", "45s"),
        (99, "99s", "1m39s"),
        (270, "4.5m", "4m30s"),
        (16560, "4.6h", "4h36m"),
        (7200, "2.0h", "2h"),
    ],
)
def test_times_are_short(seconds: float, log: str, status: str) -> None:
    assert (short_time(seconds), clock_time(seconds)) == (log, status)
