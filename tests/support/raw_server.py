"""A server that says exactly the bytes that a test gives it, to see what a client makes of them."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Awaitable, Callable
from typing import Self

Say = Callable[[asyncio.StreamWriter], Awaitable[None]]
_LENGTH = re.compile(rb"content-length: *([0-9]+)", re.IGNORECASE)


class RawServer:
    """Answers the n-th request with the n-th of what it was given to say, and all later ones with the last.

    Attributes:
        requests: Heads and bodies that came.
        connections: How many were made.
        hung_up: Connections that the client has closed.
    """

    def __init__(
        self,
        *says: bytes | Say,
        certificates: ssl.SSLContext | None = None,
        reads_bodies: bool = True,
    ) -> None:
        self._says = says
        self._reads_bodies = reads_bodies
        self._certificates = certificates
        self.requests: list[bytes] = []
        self.connections = 0
        self.hung_up = 0
        self.port = 0
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        scheme = "http" if self._certificates is None else "https"
        return f"{scheme}://localhost:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, backlog=4096, ssl=self._certificates
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = _LENGTH.search(head) if self._reads_bodies else None
                self.requests.append(head + await reader.readexactly(int(length[1]) if length else 0))
                say = self._says[min(len(self.requests), len(self._says)) - 1]
                if isinstance(say, bytes):
                    writer.write(say)
                    await writer.drain()
                else:
                    await say(writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.hung_up += 1
        finally:
            writer.close()


def closing(said: bytes) -> Say:
    """Says so and closes the connection."""

    async def say(writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await writer.drain()
        writer.close()

    return say


def bit_by_bit(said: bytes) -> Say:
    """Says so, each byte for itself."""

    async def say(writer: asyncio.StreamWriter) -> None:
        for byte in said:
            writer.write(bytes([byte]))
            await asyncio.sleep(0)

    return say
