"""Connections to the servers that are asked, kept open from one request to the next.

A client for every purpose costs more on a small request than all the rest of the generator; this one does
what asking needs: POST, a body that is known, an answer of any size, and a connection that closes the moment
a request is given up. It goes straight to the server: no proxy, no redirect, no cookies, no compression.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import aiohappyeyeballs

from draftmill_jobs.engines.failures import FailureKind, RequestFailedError
from draftmill_jobs.engines.http1 import Connection, Reply

IDLE_SECONDS: Final = 4.0  # seconds; servers close idle connections after 5
_ADDRESSES_LAST: Final = 30.0  # seconds for which a name's addresses are not asked again
_NEXT_ADDRESS_AFTER: Final = 0.25  # seconds, https://www.rfc-editor.org/rfc/rfc8305#section-8
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class _Origin(NamedTuple):
    host: str
    port: int
    secure: bool


@dataclass
class _Addresses:
    found: asyncio.Task[deque[aiohappyeyeballs.AddrInfoType]]
    since: float


@dataclass
class _Server:
    """What is known of one server.

    Attributes:
        idle: Connections that wait for a request, the one that was used last at the end.
    """

    idle: dict[Connection, None] = field(default_factory=dict)
    addresses: _Addresses | None = None


class Connections:
    """As many connections as there are requests at once: how many those are is the caller's to limit."""

    def __init__(self) -> None:
        self._servers: dict[str, _Server] = {}

    async def post(
        self,
        url: str,
        path: str,
        body: bytes,
        *,
        connect_timeout: float,
        byte_came: Callable[[], None],
        take: Callable[[bytes], None] | None = None,
    ) -> Reply:
        """Sends a JSON body and waits for the end of the answer, whatever its status.

        Cancelling it closes the connection, by which a server knows that nobody waits for the answer.

        Args:
            url: Base address of the server.
            path: Of the route.
            body: JSON.
            connect_timeout: Seconds for the connection alone.
            byte_came: Called whenever a part of the answer arrives.
            take: Is given the body of a good answer part by part; None collects it.

        Raises:
            RequestFailedError: There is no answer, and why.
        """
        server = self._servers.setdefault(url, _Server())
        connection = self._idle(server) or await self._connect(server, url, connect_timeout)
        try:
            reply = await connection.ask(
                b"%b%d\r\n\r\n%b" % (_head(url, path), len(body), body), byte_came=byte_came, take=take
            )
        except BaseException:
            connection.abort()
            raise
        if connection.can_be_kept:
            connection.idle_since = asyncio.get_running_loop().time()
            server.idle[connection] = None
        else:
            connection.abort()
        return reply

    def close(self) -> None:
        """Closes those that are idle; the others close with their requests."""
        for server in self._servers.values():
            for connection in list(server.idle):
                connection.abort()
            if server.addresses is not None:
                server.addresses.found.cancel()

    def _idle(self, server: _Server) -> Connection | None:
        now = asyncio.get_running_loop().time()
        while server.idle:
            connection, _ = server.idle.popitem()
            if connection.is_open and now - connection.idle_since < IDLE_SECONDS:
                return connection
            connection.abort()
        return None

    async def _connect(self, server: _Server, url: str, connect_timeout: float) -> Connection:
        origin = _origin(url)
        try:
            async with asyncio.timeout(connect_timeout):
                made = await aiohappyeyeballs.start_connection(
                    await self._addresses(server, origin),
                    happy_eyeballs_delay=_NEXT_ADDRESS_AFTER,
                    socket_factory=keepalive_socket,
                )
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: Connection(url, lambda lost: server.idle.pop(lost, None)),
                    sock=made,
                    ssl=self._certificates if origin.secure else None,
                    server_hostname=origin.host if origin.secure else None,
                )
        except TimeoutError as error:
            raise RequestFailedError(
                FailureKind.TIMEOUT_CONNECT, f"no connection to {url} within {connect_timeout:g} s"
            ) from error
        except OSError as error:
            raise RequestFailedError(
                FailureKind.CONNECT, f"cannot connect to {url}: {error.strerror or error}"
            ) from error
        return connection

    async def _addresses(self, server: _Server, origin: _Origin) -> deque[aiohappyeyeballs.AddrInfoType]:
        """The server's addresses, each time from another one on; those who ask at once share one look."""
        loop = asyncio.get_running_loop()
        known = server.addresses
        if known is None or loop.time() - known.since > _ADDRESSES_LAST or _has_failed(known.found):
            found = loop.create_task(_look_up(origin))
            known = server.addresses = _Addresses(found, loop.time())
        addresses = await asyncio.shield(known.found)
        addresses.rotate(-1)
        return deque(addresses)

    @cached_property
    def _certificates(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        context.set_alpn_protocols(["http/1.1"])
        return context


async def _look_up(origin: _Origin) -> deque[aiohappyeyeballs.AddrInfoType]:
    found = await asyncio.get_running_loop().getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
    return deque(found)


def _has_failed(task: asyncio.Task[Any]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


@lru_cache
def _origin(url: str) -> _Origin:
    parts = urlsplit(url)
    return _Origin(parts.hostname or "", parts.port or _DEFAULT_PORTS[parts.scheme], parts.scheme == "https")


@lru_cache
def _head(url: str, path: str) -> bytes:
    """A request's head up to the number of bytes in its body."""
    lines = (
        f"POST {path} HTTP/1.1",
        f"Host: {urlsplit(url).netloc}",
        "User-Agent: draftmill",
        "Accept: application/json, text/event-stream",
        "Content-Type: application/json",
        "Content-Length: ",
    )
    return "\r\n".join(lines).encode()


def keepalive_socket(address: Any) -> socket.socket:
    """A socket that notices within 35 s that the node at the other end is gone."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family=family, type=kind, proto=protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, option):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made
