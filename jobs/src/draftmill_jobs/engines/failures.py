"""Why a request failed, in one vocabulary, and what follows from it. Pure."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any, Final

import orjson

from draftmill_jobs.shared.redaction import redact


class FailureKind(StrEnum):
    """Kinds of failures; their values stand in dead letters, metrics and status."""

    CONNECT = "connect"
    TIMEOUT_CONNECT = "timeout_connect"
    CONNECTION_LOST = "connection_lost"
    TIMEOUT_STALL = "timeout_stall"
    ABORTED = "aborted"
    OVERLOADED = "overloaded"
    PROXY_TIMEOUT = "proxy_timeout"
    SERVER_ERROR = "server_error"
    TRY_AGAIN = "try_again"
    INVALID_RESPONSE = "invalid_response"
    COUNT_MISMATCH = "count_mismatch"
    BAD_REQUEST = "bad_request"
    CONTEXT_OVERFLOW = "context_overflow"
    TEMPLATE_REFUSED = "template_refused"
    UNUSABLE_ROW = "unusable_row"
    PREVIOUS_TURN = "previous_turn"
    UNAUTHORIZED = "unauthorized"
    NOT_FOUND = "not_found"
    REFUSED = "refused"


class Verdict(StrEnum):
    """What a failure means."""

    RETRY = "retry"
    """It may pass: the row is asked again."""
    DEAD = "dead"
    """The row itself cannot be answered."""
    STOP = "stop"
    """It concerns the server, not the row: every row would fail so."""


_DEAD = frozenset(
    {
        FailureKind.BAD_REQUEST,
        FailureKind.CONTEXT_OVERFLOW,
        FailureKind.TEMPLATE_REFUSED,
        FailureKind.UNUSABLE_ROW,
    }
)
LOSSES: Final = frozenset({FailureKind.CONNECT, FailureKind.TIMEOUT_CONNECT, FailureKind.CONNECTION_LOST})
"""Kinds that say nothing about the request: there was no connection, or it ended."""
_STOP = frozenset({FailureKind.UNAUTHORIZED, FailureKind.NOT_FOUND, FailureKind.REFUSED})

_BY_STATUS = {
    400: FailureKind.BAD_REQUEST,
    401: FailureKind.UNAUTHORIZED,
    403: FailureKind.UNAUTHORIZED,
    404: FailureKind.NOT_FOUND,
    408: FailureKind.TRY_AGAIN,
    409: FailureKind.TRY_AGAIN,
    413: FailureKind.CONTEXT_OVERFLOW,
    422: FailureKind.BAD_REQUEST,
    425: FailureKind.TRY_AGAIN,
    429: FailureKind.OVERLOADED,
    503: FailureKind.OVERLOADED,
    504: FailureKind.PROXY_TIMEOUT,
}
_OVERFLOW = re.compile(
    r"context length|context window|longer than the model|maximum (input|context|model)|too many tokens"
    r"|Requested token count exceeds|input_tokens|max_model_len",
    re.IGNORECASE,
)
_TEMPLATE = re.compile(
    r"roles? (is )?not supported|roles? must alternate|roles are supported|no user query|TemplateError",
    re.IGNORECASE,
)
_OUT_OF_MEMORY = re.compile(r"out of memory", re.IGNORECASE)
_MARKUP = re.compile(rb"<(script|style).*?</\1>|<[^>]*>", re.DOTALL | re.IGNORECASE)
_MESSAGE_LIMIT = 500  # characters
_LONGEST_WAIT = 600.0  # seconds; a row waits no longer, whatever the server asks for


class RequestFailedError(Exception):
    """A request brought no answer.

    Attributes:
        kind: What happened.
        message: The server's words, or ours, without secrets.
        retry_after: Seconds that the server asked to wait, at most ten minutes.
    """

    def __init__(self, kind: FailureKind, message: str, *, retry_after: float | None = None) -> None:
        self.kind = kind
        self.message = redact(message)
        super().__init__(self.message)
        self.retry_after = retry_after

    @property
    def verdict(self) -> Verdict:
        """What follows for the row."""
        if self.kind in _DEAD:
            return Verdict.DEAD
        return Verdict.STOP if self.kind in _STOP else Verdict.RETRY


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """What an error answer says, whoever sent it."""

    message: str
    parameter: str


def read_error(body: bytes) -> ErrorBody:
    """Reads the bodies of vLLM, both of SGLang, and those of proxies (HTML, `detail`, nothing)."""
    try:
        value: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ErrorBody(_cut(_MARKUP.sub(b" ", body[:20_000]).decode(errors="replace")), "")
    if isinstance(value, dict):
        error = value.get("error") or value
        if isinstance(error, dict):
            message = error.get("message") or error.get("detail") or error
            return ErrorBody(_cut(_plain(message)), str(error.get("param") or ""))
        return ErrorBody(_cut(_plain(error)), "")
    return ErrorBody(_cut(_plain(value)), "")


def failure_from_status(
    status: int,
    body: bytes,
    *,
    retry_after: str | None = None,
    location: str | None = None,
    now: datetime | None = None,
) -> RequestFailedError:
    """The failure that an HTTP status, its headers and body tell of."""
    failure = failure_from_error(status, read_error(body))
    if status < 400 and location is not None:
        hint = f" (a redirect to {location}, which is not followed: give the server's own address)"
        failure = RequestFailedError(failure.kind, failure.message + hint)
    failure.retry_after = _seconds(retry_after, now or datetime.now(UTC))
    return failure


def failure_from_error(status: int, error: ErrorBody) -> RequestFailedError:
    """The failure that a status and the words beside it tell of."""
    kind = _kind(status, error)
    message = f"HTTP {status}: {error.message}" if error.message else f"HTTP {status}"
    if kind is FailureKind.PROXY_TIMEOUT:
        message += " (a proxy between here and the server gave up: raise its read timeout or go around it)"
    return RequestFailedError(kind, message)


def told_failure(payload: dict[str, Any]) -> RequestFailedError | None:
    """The failure that the JSON of HTTP 200 tells of, as events of a stream do; None when it is an answer."""
    error = payload.get("error")
    if error is None and payload.get("object") != "error":
        return None
    said = read_error(orjson.dumps(payload))
    code = (error if isinstance(error, dict) else payload).get("code")
    if isinstance(code, int) and code >= 400:
        return failure_from_error(code, said)
    return RequestFailedError(_kind(500, said), said.message)


def _kind(status: int, error: ErrorBody) -> FailureKind:
    """What a status means, and where that is too little, the words beside it."""
    if status in _BY_STATUS:
        kind = _BY_STATUS[status]
    elif status >= 500:
        kind = FailureKind.SERVER_ERROR
    elif status >= 300:
        kind = FailureKind.REFUSED  # about another address, payment, method, law, ...: never about one row
    else:
        kind = FailureKind.INVALID_RESPONSE
    match kind:
        case FailureKind.BAD_REQUEST | FailureKind.SERVER_ERROR if _TEMPLATE.search(error.message):
            return FailureKind.TEMPLATE_REFUSED
        case FailureKind.BAD_REQUEST if _OVERFLOW.search(f"{error.message} {error.parameter}"):
            return FailureKind.CONTEXT_OVERFLOW
        case FailureKind.SERVER_ERROR if _OUT_OF_MEMORY.search(error.message):
            return FailureKind.OVERLOADED
        case _:
            return kind


def _seconds(retry_after: str | None, now: datetime) -> float | None:
    """`Retry-After` is a number of seconds or a date; None when it is neither."""
    if retry_after is None:
        return None
    try:
        wanted = float(retry_after)
    except ValueError:
        wanted = _seconds_until(retry_after, now)
    return min(_LONGEST_WAIT, max(0.0, wanted)) if math.isfinite(wanted) else None


def _seconds_until(date: str, now: datetime) -> float:
    """Seconds to an HTTP date; not a number when it is none."""
    try:
        moment = parsedate_to_datetime(date)
    except (ValueError, OverflowError):
        return math.nan
    return (moment - now).total_seconds() if moment.tzinfo else math.nan


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _cut(text: str) -> str:
    return " ".join(text.split())[:_MESSAGE_LIMIT]
