"""A proxy before a real API server that refuses and breaks what a test says."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import aiohttp
import yaml
from aiohttp import web

from draftmill_operator.kube.connection import from_kubeconfig

Fault = Callable[[str, str], int | None]
"""Method and path of a request -> code of the refusal, or None."""

_HOP = {"content-length", "transfer-encoding", "connection", "content-encoding", "host", "accept-encoding"}


def _no_fault(_method: str, _path: str) -> int | None:
    return None


class FaultyApi:
    """The proxy; its attributes may be changed at any time."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self.direct_kubeconfig = kubeconfig
        """Leads past the proxy."""
        self._connection = from_kubeconfig(kubeconfig)
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()
        self._watches: set[asyncio.Task[None]] = set()
        self._folder = folder
        self.fault: Fault = _no_fault
        self.cause = ""
        """What the refusals name as their cause."""
        self.watch_error: int | None = None
        self.watch_delay = 0.0
        """Seconds by which each event of a watch comes late."""
        self.refused = 0

    @property
    def kubeconfig(self) -> Path:
        """Leads through the proxy."""
        return self._folder / "faulty.kubeconfig"

    def break_watches(self) -> None:
        """Cut every open watch."""
        for task in list(self._watches):
            self._loop.call_soon_threadsafe(task.cancel)

    def run(self, started: threading.Event) -> None:
        """Serve until stopped; the thread's body."""
        try:
            self._loop.run_until_complete(self._serve(started))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    def stop(self) -> None:
        """End `run`."""
        self._loop.call_soon_threadsafe(self._stopped.set)

    async def _serve(self, started: threading.Event) -> None:
        application = web.Application(client_max_size=1 << 24)
        application.router.add_route("*", "/{path:.*}", self._forward)
        runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        (address,) = runner.addresses
        own = _kubeconfig(f"http://127.0.0.1:{address[1]}", self._connection.token)
        self.kubeconfig.write_text(yaml.safe_dump(own))
        async with aiohttp.ClientSession() as self._session:
            started.set()
            await self._stopped.wait()
            await runner.cleanup()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0.25)  # TLS says goodbye in the background; aiohttp offers nothing to wait for

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        code = self.fault(request.method, request.path)
        if code is not None:
            self.refused += 1
            causes = [{"reason": self.cause}] if self.cause else []
            status = {
                "kind": "Status",
                "code": code,
                "reason": "Injected",
                "message": "made by the test",
                "details": {"causes": causes},
            }
            return web.json_response(status, status=code)
        headers = {key: value for key, value in request.headers.items() if key.lower() not in _HOP}
        async with self._session.request(
            request.method,
            self._connection.server + request.path_qs,
            data=await request.read() or None,
            headers=headers,
            ssl=self._connection.ssl_context(),
            timeout=aiohttp.ClientTimeout(total=None),
        ) as upstream:
            if "watch" not in request.query:
                body = await upstream.read()
                kept = {k: v for k, v in upstream.headers.items() if k.lower() not in _HOP}
                return web.Response(status=upstream.status, body=body, headers=kept)
            return await self._stream(request, upstream)

    async def _stream(self, request: web.Request, upstream: aiohttp.ClientResponse) -> web.StreamResponse:
        response = web.StreamResponse(status=upstream.status, headers={"Content-Type": "application/json"})
        await response.prepare(request)
        task = asyncio.create_task(self._pump(upstream, response))
        self._watches.add(task)
        try:
            await task
        except (asyncio.CancelledError, aiohttp.ClientError, ConnectionError):
            if request.transport is not None:
                request.transport.abort()
        finally:
            self._watches.discard(task)
        return response

    async def _pump(self, upstream: aiohttp.ClientResponse, response: web.StreamResponse) -> None:
        events: asyncio.Queue[tuple[float, bytes] | None] = asyncio.Queue()
        reader = asyncio.create_task(self._read(upstream, events))
        try:
            while (event := await events.get()) is not None:
                due, line = event
                if self.watch_error is not None:
                    error = {"type": "ERROR", "object": {"kind": "Status", "code": self.watch_error}}
                    await response.write(json.dumps(error).encode() + b"\n")
                    return
                await asyncio.sleep(due - self._loop.time())
                await response.write(line)
            await reader
        finally:
            reader.cancel()

    async def _read(
        self, upstream: aiohttp.ClientResponse, events: asyncio.Queue[tuple[float, bytes] | None]
    ) -> None:
        """Each event of a watch, and when it is due; None after the last one."""
        try:
            async for line in _lines(upstream):
                events.put_nowait((self._loop.time() + self.watch_delay, line))
        finally:
            events.put_nowait(None)


async def _lines(upstream: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    buffer = b""
    async for chunk in upstream.content.iter_any():
        *lines, buffer = (buffer + chunk).split(b"\n")
        for line in lines:
            yield line + b"\n"


def _kubeconfig(server: str, token: str | None) -> object:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "faulty",
        "contexts": [{"name": "faulty", "context": {"cluster": "faulty", "user": "faulty"}}],
        "clusters": [{"name": "faulty", "cluster": {"server": server}}],
        "users": [{"name": "faulty", "user": {"token": token}}],
    }


@contextlib.contextmanager
def faulty_api(kubeconfig: Path, folder: Path) -> Iterator[FaultyApi]:
    """A proxy in a thread of its own."""
    proxy, started = FaultyApi(kubeconfig, folder), threading.Event()
    thread = threading.Thread(target=proxy.run, args=(started,), daemon=True)
    thread.start()
    assert started.wait(10)
    try:
        yield proxy
    finally:
        proxy.stop()
        thread.join(10)
