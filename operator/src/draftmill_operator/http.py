"""Probes and metrics over HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

LONGEST_PASS: Final = 180.0
"""Seconds; a pass is a handful of requests, so one that takes longer hangs."""

Complaints = Callable[[], list[str]]


async def serve(
    port: int, alive: Complaints, ready: Complaints, registry: CollectorRegistry
) -> web.AppRunner:
    """Serve `/livez`, `/readyz` and `/metrics`; a probe fails with the complaints as its text.

    Raises:
        OSError: the port is taken.
    """

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    application = web.Application()
    application.router.add_get("/livez", _probe(alive))
    application.router.add_get("/readyz", _probe(ready))
    application.router.add_get("/metrics", metrics)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, None, port).start()
    return runner


def _probe(complaints: Complaints) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(_: web.Request) -> web.StreamResponse:
        found = complaints()
        return web.Response(status=500 if found else 200, text="\n".join(found) or "ok")

    return answer
