"""Sending a request and reading what comes back; the only place that touches HTTP answers of engines."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson

from draftmill_api.v1alpha1.shared import Engine
from draftmill_jobs.engines.base import Answer, Ask, Route, StreamingRoute
from draftmill_jobs.engines.failures import FailureKind, RequestFailedError, failure_from_status, read_error
from draftmill_jobs.engines.metrics import ServerFigures, read_figures

_READ_BUFFER = 1 << 20  # bytes; small ones make long answers slow
_IDLE_CONNECTION = 4.0  # seconds; servers close idle connections after 5
_PROBE_TIMEOUT = 20.0  # seconds for /health, /metrics and /v1/models
_JSON = {"Content-Type": "application/json"}


def open_session() -> aiohttp.ClientSession:
    """A session without any limit on connections or total time: the limiter and signs of life are those."""
    connector = aiohttp.TCPConnector(
        limit=0, keepalive_timeout=_IDLE_CONNECTION, ttl_dns_cache=30, socket_factory=_socket
    )
    return aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(total=None),
        read_bufsize=_READ_BUFFER,
        cookie_jar=aiohttp.DummyCookieJar(),
    )


def _socket(address: Any) -> socket.socket:
    """A socket that notices within 35 s that the node at the other end is gone."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family=family, type=kind, proto=protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, option):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made


async def send(
    session: aiohttp.ClientSession,
    url: str,
    route: Route,
    ask: Ask,
    *,
    streamed: StreamingRoute | None,
    connect_timeout: float,
    byte_came: Callable[[], None],
) -> Answer:
    """Asks once and reads the whole answer.

    Args:
        session: From `open_session`.
        url: Base address of the server.
        route: How to ask.
        ask: What to ask.
        streamed: The same route, when the answer shall be streamed.
        connect_timeout: Seconds for the connection alone.
        byte_came: Called whenever a part of the answer arrives.

    Raises:
        RequestFailedError: There is no answer, and why.
    """
    body = route.body(ask) if streamed is None else streamed.streaming_body(ask)
    async with _posting(session, url, route.path, body, connect_timeout) as response:
        if streamed is None:
            return route.answer(ask, await _object(response, byte_came))
        events = [event async for event in _events(response, byte_came)]
        return route.answer(ask, streamed.merge(events))


async def post(
    session: aiohttp.ClientSession,
    url: str,
    path: str,
    body: bytes,
    *,
    connect_timeout: float,
    byte_came: Callable[[], None],
) -> dict[str, Any]:
    """Sends a JSON body and reads the JSON object that comes back; arguments as of `send`.

    Raises:
        RequestFailedError: There is no answer, and why.
    """
    async with _posting(session, url, path, body, connect_timeout) as response:
        return await _object(response, byte_came)


@asynccontextmanager
async def _posting(
    session: aiohttp.ClientSession, url: str, path: str, body: bytes, connect_timeout: float
) -> AsyncIterator[aiohttp.ClientResponse]:
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout)
    try:
        async with session.post(url + path, data=body, headers=_JSON, timeout=timeout) as response:
            if response.status != 200:
                text = await response.read()
                raise failure_from_status(
                    response.status, text, retry_after=response.headers.get("Retry-After")
                )
            yield response
    except aiohttp.ConnectionTimeoutError as error:
        raise RequestFailedError(
            FailureKind.CONNECT_TIMEOUT, f"no connection to {url} within {connect_timeout:g} s"
        ) from error
    except aiohttp.ClientConnectorError as error:
        raise RequestFailedError(FailureKind.CONNECT, f"cannot connect to {url}: {error.strerror}") from error
    except (aiohttp.ClientError, OSError) as error:
        raise RequestFailedError(
            FailureKind.CONNECTION_LOST, f"the connection to {url} was lost: {_words(error)}"
        ) from error


async def _object(response: aiohttp.ClientResponse, byte_came: Callable[[], None]) -> dict[str, Any]:
    parts: list[bytes] = []
    async for part in response.content.iter_any():
        byte_came()
        parts.append(part)
    return _parse(parts[0] if len(parts) == 1 else b"".join(parts))


def _parse(body: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise RequestFailedError(FailureKind.INVALID_RESPONSE, f"the answer is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise RequestFailedError(FailureKind.INVALID_RESPONSE, "the answer is no JSON object")
    return value


async def _events(
    response: aiohttp.ClientResponse, byte_came: Callable[[], None]
) -> AsyncIterator[dict[str, Any]]:
    """The events of a stream; one that does not end with `[DONE]` was cut."""
    rest = b""
    async for part in response.content.iter_any():
        byte_came()
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            data = line.removeprefix(b"data:").strip()
            if not line.startswith(b"data:"):
                continue
            if data == b"[DONE]":
                return
            yield _event(data)
    raise RequestFailedError(FailureKind.CONNECTION_LOST, "the stream ended in the middle of the answer")


def _event(data: bytes) -> dict[str, Any]:
    event = _parse(data)
    error = event.get("error")
    if error is not None or event.get("object") == "error":
        code = (error if isinstance(error, dict) else event).get("code")
        if isinstance(code, int) and code >= 400:
            raise failure_from_status(code, data)
        raise RequestFailedError(FailureKind.SERVER_ERROR, read_error(data).message)
    return event


async def is_healthy(session: aiohttp.ClientSession, url: str, *, connect_timeout: float) -> str:
    """Empty when the server says that it is well, else what is wrong.

    A server that takes the connection but is too busy to answer is not lost, and one without the route
    (a plain proxy) answers too.
    """
    timeout = aiohttp.ClientTimeout(total=_PROBE_TIMEOUT, sock_connect=connect_timeout)
    try:
        async with session.get(f"{url}/health", timeout=timeout) as response:
            return "" if response.status in (200, 404) else f"/health answers {response.status}"
    except aiohttp.ConnectionTimeoutError:
        return f"no connection within {connect_timeout:g} s"
    except TimeoutError:
        return ""
    except (aiohttp.ClientError, OSError) as error:
        return _words(error)


async def read_server_figures(
    session: aiohttp.ClientSession, url: str, engine: Engine
) -> ServerFigures | None:
    """The server's metrics; None when it has none.

    Raises:
        RequestFailedError: It did not answer this time.
    """
    page = await read_metrics_page(session, url)
    return read_figures(engine, page) if page is not None else None


async def read_metrics_page(session: aiohttp.ClientSession, url: str) -> str | None:
    """The server's Prometheus page; None when it has none.

    Raises:
        RequestFailedError: It did not answer this time.
    """
    status, body = await _get(session, f"{url}/metrics")
    return body.decode(errors="replace") if status == 200 else None


async def read_served_models(session: aiohttp.ClientSession, url: str) -> dict[str, int | None]:
    """Names of the models that the server serves, each with its context length.

    Raises:
        RequestFailedError: It did not answer.
    """
    status, body = await _get(session, f"{url}/v1/models")
    if status != 200:
        raise failure_from_status(status, body)
    data = _parse(body).get("data")
    models = data if isinstance(data, list) else []
    return {str(model.get("id")): model.get("max_model_len") for model in models if isinstance(model, dict)}


async def _get(session: aiohttp.ClientSession, url: str) -> tuple[int, bytes]:
    try:
        async with session.get(url, timeout=aiohttp.ClientTimeout(total=_PROBE_TIMEOUT)) as response:
            return response.status, await response.read()
    except (aiohttp.ClientError, TimeoutError, asyncio.IncompleteReadError, OSError) as error:
        raise RequestFailedError(
            FailureKind.CONNECTION_LOST, f"{url} does not answer: {_words(error)}"
        ) from error


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__
