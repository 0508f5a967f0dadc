"""Connections to servers: when they are kept and closed, and what is made of all that comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from draftmill_jobs.engines import connections as of_connections
from draftmill_jobs.engines.connections import Connections
from draftmill_jobs.engines.failures import FailureKind, RequestFailedError
from draftmill_jobs.engines.http1 import Reply
from tests.support.job import until
from tests.support.ports import free_port
from tests.support.raw_server import RawServer, bit_by_bit, closing

GOOD = b'HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{"a":1}'


@pytest.fixture
async def connections() -> AsyncIterator[Connections]:
    made = Connections()
    yield made
    made.close()
    await asyncio.sleep(0)


async def ask(connections: Connections, url: str, body: bytes = b"{}", **arguments: Any) -> Reply:
    given: dict[str, Any] = {"connect_timeout": 5.0, "byte_came": lambda: None} | arguments
    async with asyncio.timeout(20):
        return await connections.post(url, "/v1/completions", body, **given)


ANSWERS = {
    "with a length": (GOOD, b'{"a":1}'),
    "in chunks": (
        b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{"a\r\n4\r\n":1}\r\n0\r\n\r\n',
        b'{"a":1}',
    ),
    "with a trailer": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x\r\n\r\n2\r\n{}\r\n0\r\nx: y\r\n\r\n",
        b"{}",
    ),
    "after something in between": (b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + GOOD, b'{"a":1}'),
    "empty": (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
}


@pytest.mark.parametrize("what", ANSWERS)
@pytest.mark.parametrize("slowly", [False, True], ids=["at once", "bit by bit"])
async def test_an_answer_is_read_in_every_form_and_its_connection_kept(
    connections: Connections, what: str, slowly: bool
) -> None:
    said, body = ANSWERS[what]
    async with RawServer(bit_by_bit(said) if slowly else said) as server:
        for _ in range(3):
            assert (await ask(connections, server.url)).body == body
        assert server.connections == 1


async def test_an_answer_without_a_length_ends_with_its_connection(connections: Connections) -> None:
    async with RawServer(closing(b'HTTP/1.1 200 OK\r\n\r\n{"a":1}')) as server:
        for _ in range(2):
            assert (await ask(connections, server.url)).body == b'{"a":1}'
        assert server.connections == 2


async def test_a_request_says_what_a_server_must_know(connections: Connections) -> None:
    async with RawServer(GOOD) as server:
        await ask(connections, server.url, b'{"prompt":[1]}')
        head, _, body = server.requests[0].partition(b"\r\n\r\n")
        first, *headers = head.decode().split("\r\n")
        assert first == "POST /v1/completions HTTP/1.1"
        assert f"Host: localhost:{server.port}" in headers
        assert "Content-Type: application/json" in headers
        assert "Content-Length: 14" in headers
        assert body == b'{"prompt":[1]}'


@pytest.mark.parametrize(
    "last_words",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    ],
)
async def test_a_connection_that_the_server_will_close_is_not_used_again(
    connections: Connections, last_words: bytes
) -> None:
    async with RawServer(last_words) as server:
        for _ in range(3):
            await ask(connections, server.url)
        assert server.connections == 3


async def test_a_connection_that_the_server_has_closed_is_not_used_again(connections: Connections) -> None:
    async with RawServer(closing(GOOD), GOOD) as server:
        await ask(connections, server.url)
        await until(lambda: not any(of.idle for of in connections._servers.values()))
        assert (await ask(connections, server.url)).body == b'{"a":1}'


async def test_a_connection_that_was_idle_for_long_is_closed_rather_than_used(
    connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with RawServer(GOOD) as server:
        await ask(connections, server.url)
        monkeypatch.setattr(of_connections, "IDLE_SECONDS", 0.0)
        await ask(connections, server.url)
        assert server.connections == 2
        await until(lambda: server.hung_up == 1)


async def test_a_server_that_says_what_nobody_asked_for_is_not_listened_to(connections: Connections) -> None:
    async with RawServer(GOOD + GOOD, GOOD) as server:
        assert (await ask(connections, server.url)).body == b'{"a":1}'
        await until(lambda: server.hung_up == 1)
        assert (await ask(connections, server.url)).body == b'{"a":1}'


async def test_a_connection_whose_server_answers_before_it_has_heard_all_is_not_used_again(
    connections: Connections,
) -> None:
    async with RawServer(
        b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n", reads_bodies=False
    ) as server:
        for _ in range(2):
            assert (await ask(connections, server.url, bytes(20_000_000))).status == 413
        assert server.connections == 2


async def test_a_request_that_is_given_up_closes_its_connection_at_once(connections: Connections) -> None:
    """Public failure 20 (vllm-project/vllm#9428): a server goes on computing what nobody waits for.

    It stops when it sees that the connection is gone.
    """

    async def say_nothing(_: asyncio.StreamWriter) -> None:
        """Lets the client wait."""

    async with RawServer(say_nothing) as server:
        asked = asyncio.create_task(ask(connections, server.url))
        await until(lambda: server.requests)
        asked.cancel()
        await until(lambda: server.hung_up == 1)
        assert asked.cancelled()


LOSSES = {
    "before an answer": b"",
    "in the middle of the answer": GOOD[:-1],
    "not HTTP/1.1": b"SSH-2.0-OpenSSH_9.2\r\n",
}


@pytest.mark.parametrize("how", LOSSES)
async def test_half_an_answer_is_none(connections: Connections, how: str) -> None:
    async with RawServer(closing(LOSSES[how])) as server:
        with pytest.raises(RequestFailedError, match=f"the connection to {server.url} was lost") as failed:
            await ask(connections, server.url)
    assert failed.value.kind is FailureKind.CONNECTION_LOST
    assert how in failed.value.message


async def test_signs_of_life_are_told_as_they_come(connections: Connections) -> None:
    came = list[int]()
    async with RawServer(bit_by_bit(GOOD)) as server:
        await ask(connections, server.url, byte_came=lambda: came.append(1))
    assert len(came) > 5


async def test_a_good_answer_is_handed_on_part_by_part_and_a_bad_one_kept(connections: Connections) -> None:
    bad = b"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 4\r\n\r\nbusy"
    parts = list[bytes]()
    async with RawServer(bit_by_bit(GOOD), bad) as server:
        good = await ask(connections, server.url, take=parts.append)
        said = await ask(connections, server.url, take=parts.append)
    assert (good.body, b"".join(parts)) == (b"", b'{"a":1}')
    assert said == Reply(503, b"busy", retry_after="7", location=None)


async def test_who_takes_an_answer_may_refuse_it(connections: Connections) -> None:
    def refuse(_: bytes) -> None:
        raise RequestFailedError(FailureKind.SERVER_ERROR, "made to fail")

    async with RawServer(GOOD) as server:
        with pytest.raises(RequestFailedError, match="made to fail"):
            await ask(connections, server.url, take=refuse)
        await until(lambda: server.hung_up == 1)


async def test_a_server_that_is_not_there_is_named_with_the_reason(connections: Connections) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(RequestFailedError, match=f"cannot connect to {url}: Connect") as failed:
        await ask(connections, url)
    assert failed.value.kind is FailureKind.CONNECT


async def test_a_name_that_is_not_known_is_looked_up_again_the_next_time(
    connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with RawServer(GOOD) as server:
        looked_up = list[str]()
        real = asyncio.get_running_loop().getaddrinfo

        async def getaddrinfo(host: str, port: int, **arguments: Any) -> Any:
            looked_up.append(host)
            if len(looked_up) == 1:
                raise OSError(-2, "Name or service not known")
            return await real(host, port, **arguments)

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
        with pytest.raises(RequestFailedError, match="Name or service not known"):
            await ask(connections, server.url)
        await asyncio.gather(*(ask(connections, server.url) for _ in range(20)))
    assert looked_up == ["localhost", "localhost"], "those who ask at once share one look"


async def test_the_next_address_of_a_name_is_tried_where_one_is_dead(
    connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with RawServer(GOOD) as server:

        async def getaddrinfo(host: str, port: int, **_: Any) -> Any:
            return [(2, 1, 6, "", ("127.0.0.2", port)), (2, 1, 6, "", ("127.0.0.1", port))]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
        replies = await asyncio.gather(*(ask(connections, server.url) for _ in range(4)))
    assert {reply.body for reply in replies} == {b'{"a":1}'}


async def test_no_proxy_of_the_environment_is_between_here_and_the_server(
    connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    async with RawServer(GOOD) as server:
        assert (await ask(connections, server.url)).status == 200


async def test_large_answers_at_a_high_concurrency_come_whole() -> None:
    """Public failure 32 (vllm-project/vllm#39963): a read buffer of 64 KB made answers ten times slower."""
    connections, many, size = Connections(), 200, 5_000_000
    sizes = list[int]()

    async def ask_once(url: str) -> None:
        taken = 0

        def take(part: bytes) -> None:
            nonlocal taken
            taken += len(part)

        await ask(connections, url, take=take)
        sizes.append(taken)

    body = memoryview(bytes(size))

    async def say(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        writer.write(body)
        await writer.drain()

    async with RawServer(say) as server:
        await asyncio.gather(*(ask_once(server.url) for _ in range(many)))
        assert sizes == [size] * many
        assert server.connections == many
    connections.close()
