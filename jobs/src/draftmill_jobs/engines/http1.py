"""One HTTP/1.1 connection to a server: a request at a time, its answer collected as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import httptools

from draftmill_jobs.engines.failures import FailureKind, RequestFailedError

_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding"})
_KEPT: Final = _FRAMING | {b"retry-after", b"location"}


@dataclass(frozen=True, slots=True)
class Reply:
    """What a server answered.

    Attributes:
        body: Whole; without what went to the request's `take`.
        retry_after: The header `Retry-After`, None without it.
        location: The header `Location`, None without it.
    """

    status: int
    body: bytes
    retry_after: str | None
    location: str | None


class Connection(asyncio.Protocol):
    """Sends a request and collects what comes back.

    Attributes:
        idle_since: Seconds of the loop's clock when it was last put aside.
    """

    def __init__(self, url: str, lost: Callable[[Connection], None]) -> None:
        """Takes the server's address for messages, and what to call when the connection is gone."""
        self.idle_since = 0.0
        self._stays = False
        self._url = url
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._answered: asyncio.Future[Reply] | None = None
        self._byte_came: Callable[[], None]
        self._take: Callable[[bytes], None] | None
        self._parser: Final = httptools.HttpResponseParser(self)
        self._begin()

    def _begin(self) -> None:
        self._status = 0
        self._parts: list[bytes] = []
        self._headers: dict[bytes, bytes] = {}

    async def ask(
        self, request: bytes, *, byte_came: Callable[[], None], take: Callable[[bytes], None] | None
    ) -> Reply:
        """Sends a request and waits for the end of its answer.

        Args:
            request: Head and body.
            byte_came: Called whenever a part of the answer arrives.
            take: Is given the body of a good answer part by part; None collects it.

        Raises:
            RequestFailedError: The connection was lost, or `take` says that the answer is none.
        """
        if self._transport is None or self._transport.is_closing():
            raise self._loss("closed before anything was sent")
        self._byte_came, self._take = byte_came, take
        self._answered = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            return await self._answered
        finally:
            self._answered = None

    def abort(self) -> None:
        """Closes it at once, so that the server stops working on what was asked."""
        if self._transport is not None:
            self._transport.abort()

    @property
    def is_open(self) -> bool:
        """Whether another request can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def can_be_kept(self) -> bool:
        """Whether both sides are done: the server keeps it open, and has been sent all of the request."""
        sent = self._transport is not None and self._transport.get_write_buffer_size() == 0
        return sent and self._stays and self.is_open

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps what to write to."""
        self._transport = transport  # type: ignore[assignment]  # uvloop's have the methods, not the class

    def data_received(self, data: bytes) -> None:
        """Takes in a part of the answer."""
        if self._answered is None or self._answered.done():
            self.abort()  # it says something that nobody asked for
            return
        self._byte_came()
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(self._loss(f"what it sends is not HTTP/1.1 ({error})"))
            self.abort()

    def eof_received(self) -> None:
        """An answer that names no length ends with the connection."""
        if self._status and self._headers.keys().isdisjoint(_FRAMING):
            self._succeed()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fails what is still waited for."""
        self._lost(self)
        when = "in the middle of the answer" if self._status else "before an answer"
        self._fail(self._loss(f"{exc or 'closed'}, {when}"))

    def on_message_begin(self) -> None:
        """Closes it when a second answer comes to one request."""
        if self._answered is None or self._answered.done():
            self.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keeps the few headers that matter."""
        name = name.lower()
        if name in _KEPT:
            self._headers[name] = value

    def on_headers_complete(self) -> None:
        """Notes how the answer begins."""
        self._status = self._parser.get_status_code()
        self._stays = self._parser.should_keep_alive()

    def on_body(self, body: bytes) -> None:
        """Keeps a part of the body, or hands it on."""
        if self._take is None or self._status != 200:
            self._parts.append(body)
            return
        try:
            self._take(body)
        except RequestFailedError as failure:
            self._fail(failure)

    def on_message_complete(self) -> None:
        """The answer is whole; what a server says before it (1xx) is none."""
        if self._status >= 200:
            self._succeed()
        self._begin()

    def _succeed(self) -> None:
        if self._answered is not None and not self._answered.done():
            body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
            self._answered.set_result(
                Reply(self._status, body, self._header(b"retry-after"), self._header(b"location"))
            )

    def _header(self, name: bytes) -> str | None:
        value = self._headers.get(name)
        return None if value is None else value.decode("latin-1")

    def _fail(self, failure: RequestFailedError) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(failure)

    def _loss(self, how: str) -> RequestFailedError:
        return RequestFailedError(
            FailureKind.CONNECTION_LOST, f"the connection to {self._url} was lost: {how}"
        )
