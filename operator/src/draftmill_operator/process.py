"""The process: which parts there are, and what ends it."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from draftmill_operator.freshness import Freshness
from draftmill_operator.http import LONGEST_PASS, serve
from draftmill_operator.kube.client import KubeClient
from draftmill_operator.kube.connection import Connection
from draftmill_operator.kube.limiter import TokenBucket
from draftmill_operator.kube.writes import Kube
from draftmill_operator.lease import Lease
from draftmill_operator.metrics import QUEUE_LONGEST, REGISTRY
from draftmill_operator.observe.store import Store
from draftmill_operator.progress import ProgressPoller
from draftmill_operator.queue import WorkQueue
from draftmill_operator.reconcile import Clock, Reconciler
from draftmill_operator.runs_metrics import RunsCollector
from draftmill_operator.settings import OperatorSettings
from draftmill_operator.watch import Intake, seed, watch

log = logging.getLogger(__name__)

WORKERS: Final = 4
"""Passes at work at once, of different runs."""
REQUESTS_PER_SECOND: Final = 50
BURST: Final = 100


@dataclass(frozen=True)
class Place:
    """Where this process runs."""

    namespace: str
    """Namespace of the lease."""
    identity: str
    http_port: int


class Operator:
    """All parts of the operator, wired."""

    def __init__(self, settings: OperatorSettings, connection: Connection, place: Place) -> None:
        self._connection = connection
        self._place = place
        self._namespaces: tuple[str | None, ...] = tuple(settings.watch_namespaces) or (None,)
        self._client = KubeClient(connection, TokenBucket(REQUESTS_PER_SECOND, BURST, time.monotonic))
        self._store = Store()
        self._queue = WorkQueue()
        self._poller = ProgressPoller(self._store, self._queue.add)
        self._intake = Intake(self._store, self._queue.add)
        self._freshness = Freshness(
            self._client, self._store, self._namespaces, self._queue.add, listed=self._intake.listed
        )
        self._lease = Lease(self._client, place.namespace, settings.lease_name, place.identity)
        self._reconciler = Reconciler(
            settings,
            self._store,
            Kube(self._client, place.identity),
            self._poller,
            Clock(now=lambda: datetime.now(UTC)),
        )
        self._watching = asyncio.Event()

    async def run(self) -> None:
        """Work until SIGTERM or SIGINT.

        Raises:
            LeaseLostError: another operator may be active.
            WatchEndedError: the watches ended.
            ApiError: the API server refuses what the operator cannot do without.
        """
        stop = asyncio.Event()
        _stop_on_signals(stop)
        REGISTRY.register(RunsCollector(self._store))
        server = await serve(self._place.http_port, self._not_alive, self._not_ready, REGISTRY)
        stopping = asyncio.create_task(stop.wait(), name="stop")
        try:
            await _first_of(stopping, asyncio.create_task(self._work(stop), name="work"))
        finally:
            await self._lease.release()
            await self._client.close()
            await server.cleanup()

    async def _work(self, stop: asyncio.Event) -> None:
        await self._lease.acquire()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._lease.keep(), name="lease")
            await seed(self._client, self._intake, self._namespaces)
            log.info("cache is filled with %d runs", len(list(self._store.runs())))
            for number in range(WORKERS):
                group.create_task(self._queue.work(self._reconciler.reconcile), name=f"worker {number}")
            group.create_task(self._poller.poll(), name="progress")
            group.create_task(self._freshness.watch(), name="freshness")
            # kopf cancels, when it ends, every task that was begun after it: it comes last.
            await asyncio.sleep(0)
            group.create_task(
                watch(self._connection, self._intake, self._namespaces, self._watching), name="watch"
            )
            await self._watching.wait()
            _stop_on_signals(stop)

    def _not_alive(self) -> list[str]:
        QUEUE_LONGEST.set(self._queue.longest_running())
        complaints = [f"the watch of {kind} does not deliver" for kind in self._freshness.stale_kinds()]
        if self._queue.longest_running() > LONGEST_PASS:
            complaints.append("a pass hangs")
        return complaints

    def _not_ready(self) -> list[str]:
        if not self._watching.is_set():
            return ["the lease is not held yet, or the cache not filled"]
        return self._not_alive()


def _stop_on_signals(stop: asyncio.Event) -> None:
    """Take the signals (back from kopf, which ends as if nothing was wrong)."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)


async def _first_of(*tasks: asyncio.Task[object]) -> None:
    """Wait for the first task's end, cancel the others, and raise what it raised."""
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    for task in done:
        task.result()
