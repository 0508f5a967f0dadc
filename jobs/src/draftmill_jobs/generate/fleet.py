"""The endpoints that the config names, each looked after until nothing is in flight there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from draftmill_api.v1alpha1.shared import Endpoint as EndpointSpec
from draftmill_jobs.engines.base import Route
from draftmill_jobs.generate.endpoints import Endpoint, EndpointPool
from draftmill_jobs.generate.keeper import Prover, keep, watch
from draftmill_jobs.generate.life import Life

log = logging.getLogger(__name__)


class Fleet:
    """Brings the pool to what the config says, now and whenever it changes."""

    def __init__(
        self,
        pool: EndpointPool,
        preflight: Prover,
        group: asyncio.TaskGroup,
        *,
        route_for: Callable[[EndpointSpec], Route],
        stall_timeout: Callable[[], float],
    ) -> None:
        self._pool = pool
        self._preflight = preflight
        self._group = group
        self._route_for = route_for
        self._stall_timeout = stall_timeout
        self._keepers: dict[str, asyncio.Task[None]] = {}
        self._seen_out: set[asyncio.Task[None]] = set()

    def use(
        self, specs: Sequence[EndpointSpec], caps: Mapping[str, int | None] = MappingProxyType({})
    ) -> None:
        """Takes in what is new and out what is gone; one with another address or engine is both.

        What is in flight at an endpoint that goes may finish there.

        Args:
            specs: The endpoints.
            caps: Most requests at once at each, by its name; no limit of its own where it is left out.
        """
        wanted = {spec.name: spec for spec in specs}
        for name, endpoint in list(self._pool.endpoints.items()):
            if not _is_same(endpoint.spec, wanted.get(name)):
                log.info("endpoint %s (%s) is taken out", name, endpoint.spec.url)
                self._pool.remove(name)
                self._keepers.pop(name).cancel()
                self._see_out(endpoint)
        for name, spec in wanted.items():
            if name not in self._pool.endpoints:
                endpoint = Endpoint(spec, self._route_for(spec), Life(last_sign=self._pool.clock()))
                self._pool.add(endpoint)
                keeper = keep(self._pool, endpoint, self._preflight, self._stall_timeout)
                self._keepers[name] = self._group.create_task(keeper)
            self._pool.set_cap(self._pool.endpoints[name], caps.get(name))

    def dismiss(self) -> None:
        """Nobody is looked after any longer."""
        for task in (*self._keepers.values(), *self._seen_out):
            task.cancel()

    def _see_out(self, endpoint: Endpoint) -> None:
        """Goes on watching for signs of life until nothing is in flight there."""
        task = self._group.create_task(watch(self._pool, endpoint, self._stall_timeout))
        self._seen_out.add(task)
        task.add_done_callback(self._seen_out.discard)


def _is_same(endpoint: EndpointSpec, wanted: EndpointSpec | None) -> bool:
    return wanted is not None and (endpoint.url, endpoint.engine) == (wanted.url, wanted.engine)
