"""The interface of an engine's route: a question in, token ids out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import orjson

from draftmill_api.record import FinishReason
from draftmill_jobs.engines.failures import ErrorBody, FailureKind, RequestFailedError, failure_from_error

_DIGITS: Final = b"[0123456789,]"


@dataclass(frozen=True, slots=True)
class Ask:
    """One request.

    Attributes:
        request_id: Another one for every try, so that a server never takes two tries for one.
        model: Name under which the server serves the model.
        prompt_ids: The prompt as token ids; only routes that send them need it.
        sampling: temperature, top_p, max_completion_tokens and, where set, top_k, min_p, seed.
        stop_ids: Further tokens that end the answer.
    """

    request_id: str
    model: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None
    template_arguments: dict[str, Any]
    prompt_ids: list[int]
    sampling: Mapping[str, Any]
    stop_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server said.

    Attributes:
        text: The server's own text of the answer, special tokens included; None where a parser of the server
            has taken it apart, or it sends none.
        stated_prompt_tokens: The server's own count, None when it gives none.
        stated_completion_tokens: The server's own count, None when it gives none.
    """

    prompt_ids: list[int]
    output_ids: list[int]
    finish: FinishReason
    text: str | None
    stated_prompt_tokens: int | None
    stated_completion_tokens: int | None


class Route(ABC):
    """One way of asking one engine. Pure: bytes and objects, no sockets."""

    path: ClassVar[str]
    sends_ids: ClassVar[bool]
    """The prompt is sent as token ids, made by the chat template here."""

    @abstractmethod
    def body(self, ask: Ask) -> bytes:
        """The request's JSON."""

    @abstractmethod
    def answer(self, ask: Ask, payload: dict[str, Any]) -> Answer:
        """Reads a whole answer, whatever JSON it is.

        Raises:
            RequestFailedError: It was aborted, or lacks what it must have, or has another form.
        """


class StreamingRoute(Route):
    """A route whose streamed answers come with token ids too."""

    @abstractmethod
    def streaming_body(self, ask: Ask) -> bytes:
        """The JSON of a request for a streamed answer."""

    def replaces(self, event: dict[str, Any], earlier: dict[str, Any]) -> bool:  # noqa: ARG002 - seldom so
        """Whether an event of a stream says all that the one before it says."""
        return False

    @abstractmethod
    def merge(self, events: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Brings the events of a stream to the form of a whole answer.

        Raises:
            RequestFailedError: An event has another form.
        """


def finish_reason(said: Any) -> FinishReason:
    """An engine's word in our vocabulary: a word, or an object with the word as its type.

    Raises:
        RequestFailedError: The server gave the request up, or says something unknown.
    """
    word: Any = said.get("type") if isinstance(said, dict) else said
    if word == "abort":
        raise _abort(said if isinstance(said, dict) else {})
    try:
        return FinishReason(word)
    except ValueError:
        raise RequestFailedError(
            FailureKind.INVALID_RESPONSE, f"unknown finish reason {repr(said)[:100]}"
        ) from None


def _abort(said: dict[str, Any]) -> RequestFailedError:
    """Why a server gave a request up, where it says so; most abort with HTTP 200 and no word."""
    message = str(said.get("message") or "no reason")[:500]
    status = said.get("status_code")
    if isinstance(status, int) and status >= 400:
        return failure_from_error(status, ErrorBody(message, ""))
    return RequestFailedError(FailureKind.ABORTED, f"the server aborted the request: {message}")


def token_ids(value: Any, what: str) -> list[int]:
    """A list of token ids as the server sent it.

    Raises:
        RequestFailedError: It is missing or something else.
    """
    if not isinstance(value, list) or not value:
        raise RequestFailedError(FailureKind.INVALID_RESPONSE, f"the answer has no {what}")
    if not _are_token_ids(value):
        raise RequestFailedError(FailureKind.INVALID_RESPONSE, f"{what}: not all are token ids")
    return value


def _are_token_ids(values: list[Any]) -> bool:
    """Whether all are numbers from 0 to 2^31 - 1, at a tenth of the time that looking at each takes."""
    try:
        array("i", values)
    except (TypeError, OverflowError):
        return False
    return not orjson.dumps(values).translate(None, _DIGITS)  # an array takes true for 1, and -1


def object_of(value: Any, what: str) -> dict[str, Any]:
    """A JSON object of an answer; empty when the server leaves it out.

    Raises:
        RequestFailedError: It is something else.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RequestFailedError(FailureKind.INVALID_RESPONSE, f"the answer's {what} is no JSON object")
    return value


def list_of(value: Any, what: str) -> list[Any]:
    """A JSON list of an answer; empty when the server leaves it out.

    Raises:
        RequestFailedError: It is something else.
    """
    if value is None:
        return []
    if not isinstance(value, list):
        raise RequestFailedError(FailureKind.INVALID_RESPONSE, f"the answer's {what} is no list")
    return value


def text_of(value: Any, what: str) -> str:
    """A text of an answer; empty when the server leaves it out.

    Raises:
        RequestFailedError: It is something else.
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        raise RequestFailedError(FailureKind.INVALID_RESPONSE, f"the answer's {what} is no text")
    return value


def stated_count(value: Any, what: str) -> int | None:
    """A number of tokens that the server states, None when it states none.

    Raises:
        RequestFailedError: It is something else.
    """
    if value is not None and type(value) is not int:
        raise RequestFailedError(FailureKind.INVALID_RESPONSE, f"the answer's {what} is no number of tokens")
    return value


def check_counts(answer: Answer) -> Answer:
    """The same answer, when the server's counts are those of its token ids.

    Raises:
        RequestFailedError: They are not.
    """
    for what, ids, stated in (
        ("prompt", answer.prompt_ids, answer.stated_prompt_tokens),
        ("completion", answer.output_ids, answer.stated_completion_tokens),
    ):
        if stated is not None and stated != len(ids):
            raise RequestFailedError(
                FailureKind.COUNT_MISMATCH,
                f"the server counts {stated} {what} tokens but sent {len(ids)} ids",
            )
    return answer
