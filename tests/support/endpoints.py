"""Endpoints without a server behind them, and leases on their places."""

from __future__ import annotations

from draftmill_api.v1alpha1.shared import Endpoint as EndpointSpec
from draftmill_api.v1alpha1.shared import Engine
from draftmill_jobs.engines.vllm import VllmChat
from draftmill_jobs.generate.endpoints import Endpoint
from draftmill_jobs.generate.life import Life
from draftmill_jobs.generate.limiter import Caps, Lease, Limiter, Size
from draftmill_jobs.generate.quota import Quota


def an_endpoint(name: str = "s0", url: str = "http://127.0.0.1:9") -> Endpoint:
    """An endpoint that nobody looks after."""
    spec = EndpointSpec(name=name, url=url, engine=Engine.VLLM)
    return Endpoint(spec, VllmChat(), Life(last_sign=0.0))


def a_limiter(long: int, total: int) -> Limiter:
    """A limiter that only caps limit."""
    return Limiter(Caps(long, total), Quota(None, None, 1), lambda: 0.0)


async def lease(limiter: Limiter, size: Size = Size.LONG, *, first: bool = False) -> Lease:
    """Waits for a place at a server that has room for all."""
    server = an_endpoint()
    return await limiter.lease(size, lambda: server, first=first)
