"""Proves that watches deliver: what the API server has is compared with what the cache has.

A watch that is silently dead looks like a quiet cluster. So the operator lists the metadata of everything
that it watches, once a minute, from the API server's own cache. A change that the watch has not brought by
the next look is missing; an object that is gone is forgotten, which also heals a deletion that fell into
the gap between two watches. Such a gap lies before each list that a watch begins with, and between the first
filling of the cache and the watches: after a list it looks at once, for a Job that is gone may be waited for.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

import aiohttp

from draftmill_operator.kube.client import KubeClient
from draftmill_operator.kube.errors import ApiError
from draftmill_operator.kube.resources import RESOURCES, selector_of
from draftmill_operator.metrics import WATCH_LAG
from draftmill_operator.observe.store import Kind, Object, Store
from draftmill_operator.run import RunKey

log = logging.getLogger(__name__)

PERIOD: Final = 60.0
SUSPICIOUS_PERIOD: Final = 15.0
SETTLING: Final = 2.0
"""Seconds in which a watch that has begun, or that brings a deletion late, tells what it has to tell."""
STALE_AFTER: Final = 90.0
"""Seconds for which a change may be missing before the process is taken for blind."""

Versions = dict[str, int]
"""Resource version of each object, by its uid."""


class Freshness:
    """For how long the cache of each kind has lacked something."""

    def __init__(
        self,
        client: KubeClient,
        store: Store,
        namespaces: tuple[str | None, ...],
        changed: Callable[[RunKey], None],
        *,
        listed: asyncio.Event,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._store = store
        self._namespaces = namespaces
        self._changed = changed
        self._listed = listed
        self._clock = clock
        self._missing_since: dict[Kind, float] = {}
        self._suspects: dict[Kind, set[str]] = {}

    def stale_kinds(self) -> list[Kind]:
        """Kinds whose watch has not delivered for too long."""
        now = self._clock()
        return [kind for kind, since in self._missing_since.items() if now - since > STALE_AFTER]

    async def watch(self) -> None:
        """Compare for ever."""
        while True:
            await self._rest()
            for kind in Kind:
                try:
                    await self.compare(kind)
                except (ApiError, aiohttp.ClientError, TimeoutError) as error:
                    log.warning("cannot compare %s with the API server: %s", kind, error)

    async def _rest(self) -> None:
        """Until the next look: soon where something may be gone, or after a watch has begun with a list."""
        if any(self._suspects.values()):
            await asyncio.sleep(SETTLING)
            return
        try:
            async with asyncio.timeout(SUSPICIOUS_PERIOD if self._missing_since else PERIOD):
                await self._listed.wait()
        except TimeoutError:
            return
        self._listed.clear()
        await asyncio.sleep(SETTLING)

    async def compare(self, kind: Kind) -> None:
        """One comparison of one kind."""
        before = {raw["metadata"]["uid"] for raw in self._store.all(kind)}
        listed = await self._list(kind)
        known = {raw["metadata"]["uid"]: raw for raw in self._store.all(kind)}
        missing = {
            uid for uid, version in listed.items() if uid not in known or _version(known[uid]) < version
        }
        gone = {uid for uid in known if uid in before and uid not in listed}
        suspects = self._suspects.get(kind, set())
        for uid in gone & suspects:
            self._forget(kind, known[uid])
        self._suspects[kind] = gone - suspects
        if not missing:
            self._missing_since.pop(kind, None)
        elif kind not in self._missing_since:
            self._missing_since[kind] = self._clock()
        WATCH_LAG.labels(kind=kind.value).set(self._clock() - self._missing_since.get(kind, self._clock()))

    async def _list(self, kind: Kind) -> Versions:
        versions: Versions = {}
        for namespace in self._namespaces:
            objects = self._client.list(RESOURCES[kind], namespace, selector_of(kind), metadata_only=True)
            async for raw in objects:
                versions[raw["metadata"]["uid"]] = _version(raw)
        return versions

    def _forget(self, kind: Kind, raw: Object) -> None:
        log.info("%s %s is gone and no watch has said so", kind, raw["metadata"]["name"])
        self._store.remove(kind, raw)
        key, waiting = self._store.concerned(kind, raw)
        for concerned in waiting | ({key} if key is not None else set()):
            self._changed(concerned)


def _version(raw: Object) -> int:
    return int(raw["metadata"]["resourceVersion"])
