"""Sending a request and reading what comes back; the only place that touches HTTP answers of engines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from draftmill_api.v1alpha1.shared import Engine
from draftmill_jobs.engines.base import Answer, Ask, Route, StreamingRoute
from draftmill_jobs.engines.connections import IDLE_SECONDS, Connections, keepalive_socket
from draftmill_jobs.engines.events import EventStream, parse_object
from draftmill_jobs.engines.failures import FailureKind, RequestFailedError, failure_from_status
from draftmill_jobs.engines.http1 import Reply
from draftmill_jobs.engines.metrics import ServerFigures, read_figures

_PROBE_TIMEOUT = 20.0  # seconds for /health, /metrics and /v1/models


@dataclass(frozen=True, slots=True)
class Session:
    """How servers are reached.

    Attributes:
        connections: For what is asked.
        pages: For what they say of themselves: health, metrics, models.
    """

    connections: Connections
    pages: aiohttp.ClientSession


@asynccontextmanager
async def open_session() -> AsyncIterator[Session]:
    """A session without any limit on connections or total time: the limiter and signs of life are those."""
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_SECONDS, socket_factory=keepalive_socket)
    connections = Connections()
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as pages:
        try:
            yield Session(connections, pages)
        finally:
            connections.close()


async def send(
    session: Session,
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
    if streamed is None:
        body = route.body(ask)
        payload = await post(
            session, url, route.path, body, connect_timeout=connect_timeout, byte_came=byte_came
        )
        return route.answer(ask, payload)
    stream = EventStream(streamed.replaces)
    reply = await session.connections.post(
        url,
        route.path,
        streamed.streaming_body(ask),
        connect_timeout=connect_timeout,
        byte_came=byte_came,
        take=stream.take,
    )
    _check_status(reply)
    return route.answer(ask, streamed.merge(stream.events()))


async def post(
    session: Session,
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
    reply = await session.connections.post(
        url, path, body, connect_timeout=connect_timeout, byte_came=byte_came
    )
    _check_status(reply)
    return parse_object(reply.body)


def _check_status(reply: Reply) -> None:
    if reply.status != 200:
        raise failure_from_status(
            reply.status, reply.body, retry_after=reply.retry_after, location=reply.location
        )


async def is_healthy(session: Session, url: str, *, connect_timeout: float) -> str:
    """Empty when the server says that it is well, else what is wrong.

    A server that takes the connection but is too busy to answer is not lost, and one without the route
    (a plain proxy) answers too.
    """
    timeout = aiohttp.ClientTimeout(total=_PROBE_TIMEOUT, sock_connect=connect_timeout)
    try:
        async with session.pages.get(f"{url}/health", timeout=timeout) as response:
            return "" if response.status in (200, 404) else f"/health answers {response.status}"
    except aiohttp.ConnectionTimeoutError:
        return f"no connection within {connect_timeout:g} s"
    except TimeoutError:
        return ""
    except (aiohttp.ClientError, OSError) as error:
        return _words(error)


async def read_server_figures(session: Session, url: str, engine: Engine) -> ServerFigures | None:
    """The server's metrics; None when it has none.

    Raises:
        RequestFailedError: It did not answer this time.
    """
    page = await read_metrics_page(session, url)
    return read_figures(engine, page) if page is not None else None


async def read_metrics_page(session: Session, url: str) -> str | None:
    """The server's Prometheus page; None when it has none.

    Raises:
        RequestFailedError: It did not answer this time.
    """
    status, body = await _get(session, f"{url}/metrics")
    return body.decode(errors="replace") if status == 200 else None


async def read_served_models(session: Session, url: str) -> dict[str, int | None]:
    """Names of the models that the server serves, each with its context length.

    Raises:
        RequestFailedError: It did not answer.
    """
    status, body = await _get(session, f"{url}/v1/models")
    if status != 200:
        raise failure_from_status(status, body)
    data = parse_object(body).get("data")
    models = data if isinstance(data, list) else []
    return {str(model.get("id")): model.get("max_model_len") for model in models if isinstance(model, dict)}


async def _get(session: Session, url: str) -> tuple[int, bytes]:
    try:
        async with session.pages.get(url, timeout=aiohttp.ClientTimeout(total=_PROBE_TIMEOUT)) as response:
            return response.status, await response.read()
    except (aiohttp.ClientError, TimeoutError, asyncio.IncompleteReadError, OSError) as error:
        raise RequestFailedError(
            FailureKind.CONNECTION_LOST, f"{url} does not answer: {_words(error)}"
        ) from error


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__
