"""The JSON of answers: one object, or the events of a stream. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from draftmill_jobs.engines.failures import FailureKind, RequestFailedError, told_failure


def parse_object(body: bytes) -> dict[str, Any]:
    """The JSON object of a body.

    Raises:
        RequestFailedError: It is something else, or tells of a failure.
    """
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise RequestFailedError(FailureKind.INVALID_RESPONSE, f"the answer is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise RequestFailedError(FailureKind.INVALID_RESPONSE, "the answer is no JSON object")
    if failure := told_failure(value):
        raise failure
    return value


class EventStream:
    """The events of a stream, taken in as they come."""

    def __init__(self, replaces: Callable[[dict[str, Any], dict[str, Any]], bool]) -> None:
        """Takes what says whether an event makes the one before it needless."""
        self._replaces = replaces
        self._events: list[dict[str, Any]] = []
        self._rest = b""
        self._is_whole = False

    def take(self, part: bytes) -> None:
        """Takes in a part of the body.

        Raises:
            RequestFailedError: It tells of an error, or is no event.
        """
        *lines, self._rest = (self._rest + part).split(b"\n")
        for line in lines:
            data = line.removeprefix(b"data:").strip()
            if not line.startswith(b"data:") or self._is_whole:
                continue
            if data == b"[DONE]":
                self._is_whole = True
            else:
                self._add(parse_object(data))

    def events(self) -> list[dict[str, Any]]:
        """What came, but for events that later ones replace.

        Raises:
            RequestFailedError: The stream was cut: it did not end with `[DONE]`.
        """
        if not self._is_whole:
            raise RequestFailedError(
                FailureKind.CONNECTION_LOST, "the stream ended in the middle of the answer"
            )
        return self._events

    def _add(self, event: dict[str, Any]) -> None:
        if self._events and self._replaces(event, self._events[-1]):
            self._events[-1] = event
        else:
            self._events.append(event)
