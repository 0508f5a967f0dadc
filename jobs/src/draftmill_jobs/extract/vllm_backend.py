"""Backend VLLM: servers compute, their files are checked, stored and deleted."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from draftmill_api.extractjob import ExtractJobConfig
from draftmill_api.progress import WorkerState
from draftmill_jobs.engines.client import open_session
from draftmill_jobs.engines.failures import LOSSES, RequestFailedError, Verdict
from draftmill_jobs.engines.vllm import VllmCompletions
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.extract.asking import PATH, Asker
from draftmill_jobs.extract.backend import Work
from draftmill_jobs.extract.budget import TokenBudget
from draftmill_jobs.extract.chances import Chances, Failure, Next
from draftmill_jobs.extract.preflight import Preflight
from draftmill_jobs.extract.records import Row
from draftmill_jobs.extract.remedies import NOT_STAGED
from draftmill_jobs.extract.staging import Staging, StagingError
from draftmill_jobs.generate.endpoints import Endpoint, EndpointPool, EndpointState
from draftmill_jobs.generate.fleet import Fleet
from draftmill_jobs.generate.outage import Outage
from draftmill_jobs.generate.retry import backoff
from draftmill_jobs.store import RowRefusedError

log = logging.getLogger(__name__)

T = TypeVar("T")

_CONNECT_SECONDS: Final = 10.0
_REQUESTS_AT_ONCE: Final = 256  # servers batch no more; thousands of connections would overrun their backlog
_STALL_SECONDS: Final = 600.0  # without a sign of life, after which a request is given up
_PURGE_SECONDS: Final = 60.0  # between looks for old files; those of lost requests go within one
_ROUTE: Final = VllmCompletions()


class VllmBackend:
    """Asks servers for states."""

    def __init__(self, owner: str) -> None:
        """Takes what tells this worker's requests from those of all others."""
        self._owner = owner

    async def run(self, work: Work) -> None:
        """Keeps or gives up every row.

        Raises:
            JobError: A server disagrees, or the disk does not take states.
        """
        config = work.config()
        if config.staging is None:
            raise JobRefusedError(
                "ConfigurationInvalid",
                "backend VLLM needs staging, the folder that the servers write states to",
            )
        staging = Staging(Path(config.staging), self._owner)
        await asyncio.to_thread(staging.purge_all)
        work.board.staged_bytes = lambda: staging.bytes
        async with open_session() as session, asyncio.TaskGroup() as group:
            pool = EndpointPool(session, time.monotonic, lambda: _CONNECT_SECONDS)
            asker = Asker(pool, staging, config.model.name)
            preflight = Preflight(pool, asker, staging, work)
            fleet = Fleet(
                pool, preflight, group, route_for=lambda _: _ROUTE, stall_timeout=lambda: _STALL_SECONDS
            )
            background = [
                group.create_task(_follow(fleet, work)),
                group.create_task(_keep_purging(staging)),
                group.create_task(_observe(pool, work)),
            ]
            try:
                await Rows(work, pool, asker, staging).run()
            finally:
                fleet.dismiss()
                for task in background:
                    task.cancel()
                staging.purge_forgotten()


class Rows:
    """Brings the rows to store or quarantine, as many at once as the budget allows."""

    def __init__(self, work: Work, pool: EndpointPool, asker: Asker, staging: Staging) -> None:
        self._work = work
        self._pool = pool
        self._asker = asker
        self._staging = staging
        self._budget = TokenBudget(lambda: work.config().in_flight_tokens)
        self._requests = asyncio.Semaphore(_REQUESTS_AT_ONCE)
        self._loop = asyncio.get_running_loop()
        self._rng = random.Random()  # noqa: S311 - jitter, not a secret

    async def run(self) -> None:
        """Returns when all rows are settled or, after `stop`, when those in flight are.

        Raises:
            JobError: It cannot go on.
        """
        async with asyncio.TaskGroup() as group:
            await self._unless_stopped(self._pool.until_up())
            for row in self._work.rows:
                taken = await self._unless_stopped(self._budget.acquire(row.tokens))
                if taken is None or self._work.stop.is_set():
                    return
                group.create_task(self._settle(row, taken))

    async def _settle(self, row: Row, taken: int) -> None:
        """Brings one row to its end; after `stop` it is left as it was between two tries."""
        chances = Chances()
        while not self._work.stop.is_set():
            async with self._requests:
                endpoint = self._pool.choose()
                failure = await self._try(endpoint, row, taken) if endpoint else None
            if endpoint is None:
                await self._unless_stopped(self._pool.until_up())
                continue
            if failure is None:
                return
            match await self._judge(endpoint, failure, chances):
                case Next.NOW:
                    pass
                case Next.LATER:
                    wait = backoff(chances.tries, failure.retry_after, self._rng)
                    await self._unless_stopped(asyncio.sleep(wait))
                case Next.ALONE:
                    self._budget.release(taken)
                    taken = await self._unless_stopped(self._budget.acquire(row.tokens, alone=True)) or 0
                case Next.GIVE_UP:
                    await self._work.keeper.give_up(row, failure.reason, failure.message, chances.spent)
                    break
            self._work.board.retried += 1
        self._budget.release(taken)

    async def _try(self, endpoint: Endpoint, row: Row, taken: int) -> Failure | None:
        """Asks once and stores what comes; why that failed, if it did."""
        try:
            staged = (await self._asker.ask(endpoint, row.token_ids)).staged
        except RequestFailedError as error:
            self._check_access(endpoint, error)
            return Failure(
                error.kind,
                error.message,
                error.retry_after,
                is_final=error.verdict is Verdict.DEAD,
                is_loss=error.kind in LOSSES,
            )
        except StagingError as error:
            return Failure(NOT_STAGED, str(error))
        try:
            await self._work.keeper.keep(
                row,
                staged.states,
                staged.token_ids,
                computed_in=staged.computed_in,
                durable=partial(self._durable, staged.path, taken),
            )
        except RowRefusedError as error:
            self._staging.discard(staged.path)
            return Failure(error.fault, error.message)
        return None

    async def _judge(self, endpoint: Endpoint, failure: Failure, chances: Chances) -> Next:
        if failure.is_loss and endpoint.state is EndpointState.UP and not endpoint.removed:
            # Another process may answer there from now on: it has to prove itself, well as it may be.
            self._pool.mark(endpoint, EndpointState.STARTING, failure.message)
        if failure.is_loss or (not failure.is_final and await self._pool.is_lost(endpoint)):
            return chances.after_loss()
        return chances.after_failure(failure, self._work.config().retries)

    def _durable(self, path: Path, taken: int) -> None:
        """The row will survive a crash: its file goes, and other rows may come. In any thread."""
        self._staging.discard(path)
        self._loop.call_soon_threadsafe(self._budget.release, taken)

    def _check_access(self, endpoint: Endpoint, error: RequestFailedError) -> None:
        if error.verdict is Verdict.STOP and not endpoint.removed:
            raise JobRefusedError(
                "EndpointRefused",
                f"endpoint {endpoint.spec.name} ({endpoint.spec.url}{PATH}) refuses every request: "
                f"{error.message}; check its address, the model's name and access rights",
            )

    async def _unless_stopped(self, what: Coroutine[Any, Any, T]) -> T | None:
        """Waits for something; None when `stop` comes first."""
        waiting = asyncio.ensure_future(what)
        stopped = asyncio.ensure_future(self._work.stop.wait())
        try:
            await asyncio.wait({waiting, stopped}, return_when=asyncio.FIRST_COMPLETED)
            return waiting.result() if waiting.done() else None
        finally:
            waiting.cancel()
            stopped.cancel()


async def _follow(fleet: Fleet, work: Work) -> None:
    """Keeps the servers those that the config names; never returns."""
    seen: ExtractJobConfig | None = None
    while True:
        config = work.config()
        if config is not seen:
            seen = config
            fleet.use(config.endpoints)
        await asyncio.sleep(0.2)


async def _keep_purging(staging: Staging) -> None:
    """Deletes orphans now and then; never returns."""
    last = time.monotonic()
    while True:
        await asyncio.sleep(1.0)
        await asyncio.to_thread(staging.purge_forgotten)
        if time.monotonic() - last >= _PURGE_SECONDS:
            last = time.monotonic()
            await asyncio.to_thread(staging.purge_old)


async def _observe(pool: EndpointPool, work: Work) -> None:
    """Keeps the board's state and message true; never returns.

    Raises:
        JobFailedError: None of the servers has been up for too long.
    """
    board, outage = work.board, Outage(pool.clock())
    while True:
        board.in_flight = pool.in_flight
        if not work.stop.is_set():
            states = [endpoint.state for endpoint in pool.endpoints.values()]
            problems = "; ".join(
                f"{endpoint.spec.name}: {endpoint.problem}" for endpoint in pool.endpoints.values()
            )
            if EndpointState.UP in states:
                board.state, board.message = WorkerState.RUNNING, ""
            elif EndpointState.PROVING in states:
                board.state, board.message = WorkerState.PREFLIGHT, ""
            else:
                board.state = WorkerState.WAITING
                board.message = f"waiting for endpoints: {problems or 'the config names none yet'}"
            outage.check(
                states,
                pool.clock(),
                limit=work.config().outage_timeout,
                field="outageTimeout",
                problem=problems,
            )
        await asyncio.sleep(0.2)
