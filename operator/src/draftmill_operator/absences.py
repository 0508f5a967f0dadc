"""Objects that were deleted while no watch looked.

A watch tells of a deletion only if the object was there when it began. The cache is filled before kopf's
watches begin, and one that has lost its place begins with a new list: what went between the two would stay in
the cache for ever, and be waited for.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import aiohttp

from draftmill_operator.kube.client import KubeClient
from draftmill_operator.kube.errors import ApiError
from draftmill_operator.kube.resources import RESOURCES, selector_of
from draftmill_operator.observe.store import CHILD_KINDS, RUN_KINDS, Kind, Store
from draftmill_operator.watch import Intake

log = logging.getLogger(__name__)

SETTLING: Final = 2.0
"""Seconds between a watch's new list, of which each object is told, and the look at what it lacks."""
AFTER_START: Final = (SETTLING, 8.0, 20.0)
"""Seconds between the first looks: a list of nothing tells of no object, so nobody knows when it was."""


class Absences:
    """Takes out of the cache what is not there any more."""

    def __init__(
        self, client: KubeClient, store: Store, intake: Intake, namespaces: tuple[str | None, ...]
    ) -> None:
        self._client = client
        self._store = store
        self._intake = intake
        self._namespaces = namespaces

    async def watch(self) -> None:
        """Look after the start, and after each new list of a watch; for ever."""
        for wait in AFTER_START:
            await asyncio.sleep(wait)
            await self._look()
        while True:
            await self._intake.listed.wait()
            self._intake.listed.clear()
            await asyncio.sleep(SETTLING)
            await self._look()

    async def _look(self) -> None:
        for kind in (*CHILD_KINDS, *RUN_KINDS):
            try:
                await self.forget(kind)
            except (ApiError, aiohttp.ClientError, TimeoutError) as error:
                log.warning("absent objects of kind %s: %s", kind, str(error) or type(error).__name__)
                self._intake.listed.set()

    async def forget(self, kind: Kind) -> None:
        """Forget the objects of a kind that were known before the API server was asked, and that it lacks.

        Raises:
            ApiError: it refuses.
            aiohttp.ClientError: it cannot be reached.
            TimeoutError: it does not answer.
        """
        known = self._store.all(kind)
        there = {
            item["metadata"]["uid"]
            for namespace in self._namespaces
            async for item in self._client.list(
                RESOURCES[kind], namespace, selector_of(kind), metadata_only=True
            )
        }
        for raw in known:
            if raw["metadata"]["uid"] not in there:
                log.info("%s %s/%s is gone", kind, raw["metadata"]["namespace"], raw["metadata"]["name"])
                self._intake.take(kind, "DELETED", raw)
