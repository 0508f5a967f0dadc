"""The worker as a whole: opens the folders, looks after endpoints, admits rows, and ends in order."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from draftmill_api.base import seconds
from draftmill_api.exitcode import ExitCode
from draftmill_api.jobconfig import SynthJobConfig
from draftmill_api.names import ATTEMPT_VARIABLE
from draftmill_api.progress import WorkerState
from draftmill_api.v1alpha1.generation import AUTO, Generation
from draftmill_api.v1alpha1.shared import Endpoint as EndpointSpec
from draftmill_api.v1alpha1.status import RunProgress
from draftmill_jobs.engines.base import Route
from draftmill_jobs.engines.client import open_session
from draftmill_jobs.engines.routes import route_for
from draftmill_jobs.errors import JobError, JobFailedError, JobPausedError
from draftmill_jobs.generate.admission import Admissions
from draftmill_jobs.generate.asking import Asker
from draftmill_jobs.generate.board import Board
from draftmill_jobs.generate.endpoints import EndpointPool, EndpointState
from draftmill_jobs.generate.fleet import Fleet
from draftmill_jobs.generate.guard import Guard, WhenPaused
from draftmill_jobs.generate.knee import START
from draftmill_jobs.generate.limiter import Caps, Hold, Limiter
from draftmill_jobs.generate.opening import open_all, with_own_output
from draftmill_jobs.generate.outage import Outage
from draftmill_jobs.generate.preflight import Expectation, Preflight
from draftmill_jobs.generate.quota import Quota
from draftmill_jobs.generate.reporting import Reporter, keep_reporting, reporter, warn_of_lengths
from draftmill_jobs.generate.resume import OpenDataset
from draftmill_jobs.generate.tokenize import TokenizerThread
from draftmill_jobs.generate.tuning import Tuner
from draftmill_jobs.generate.writer import Writer
from draftmill_jobs.model.facts import TargetModel, read_model
from draftmill_jobs.shared.config import LoadedConfig, watch
from draftmill_jobs.shared.http import serve
from draftmill_jobs.shared.open_files import allow_connections
from draftmill_jobs.shared.settings import Share, datasets_of, share_from_environment
from draftmill_jobs.shared.signals import stop_on_signals

log = logging.getLogger(__name__)


async def generate(
    path: Path,
    loaded: LoadedConfig[SynthJobConfig],
    *,
    http_port: int | None,
    grace: float,
    when_paused: WhenPaused,
) -> tuple[ExitCode, RunProgress]:
    """Asks every row that has no answer yet.

    Args:
        path: The config file, which is read again every second.
        loaded: What it says now.
        http_port: Where to serve progress; 0 chooses a port, None serves nothing.
        grace: Seconds that answers in flight may take to finish after SIGTERM.
        when_paused: Whether to stay when the error policy trips.

    Returns:
        `DONE`, or `INTERRUPTED` when SIGTERM left rows to do; and the counts.

    Raises:
        JobPausedError: The error policy has tripped, and `when_paused` is to exit.
        JobError: It cannot go on.
    """
    stop = stop_on_signals()
    clock = time.monotonic
    share = share_from_environment()
    board = Board(
        run_uid=loaded.config.run.uid,
        worker=str(share),
        attempt=int(os.environ.get(ATTEMPT_VARIABLE, "1")),
        started=clock(),
        config_hash=loaded.hash,
        message="reading the model and the answers that are there already",
    )
    async with serve(http_port, lambda: board.progress(clock())):
        model = await asyncio.to_thread(read_model, loaded.config.model)
        loaded = await with_own_output(loaded, model, board, stop)
        paused = ""
        async with open_all(loaded, model, share, board, stop) as datasets:
            if not stop.is_set():
                worker = Worker(
                    path, loaded, model=model, share=share, board=board, clock=clock, when_paused=when_paused
                )
                paused = await worker.run(datasets, stop, grace)
    all_done = len(board.tallies) == len(loaded.config.datasets) and board.is_complete
    if not all_done and not stop.is_set():
        if paused:
            raise JobPausedError("ErrorPolicyTripped", paused)
        counts = ", ".join(f"{tally.name} {tally.accounted} of {tally.total}" for tally in board.tallies)
        raise JobFailedError(
            "AccountingMismatch", f"rows accounted for: {counts}; did a source change meanwhile?"
        )
    board.state, board.in_flight = WorkerState.DONE, 0
    return (ExitCode.DONE if all_done else ExitCode.INTERRUPTED), board.run_progress(clock())


class Worker:
    """One run of the generator over opened datasets."""

    def __init__(
        self,
        path: Path,
        loaded: LoadedConfig[SynthJobConfig],
        *,
        model: TargetModel,
        share: Share,
        board: Board,
        clock: Callable[[], float],
        when_paused: WhenPaused,
    ) -> None:
        self._path = path
        self._loaded = loaded
        self._model = model
        self._share = share
        self._board = board
        self._clock = clock
        self._when_paused = when_paused
        generation = loaded.config.generation
        longest = max(dataset.sampling.max_completion_tokens for dataset in datasets_of(loaded.config))
        self._quota = Quota(*_per_minute(generation, share), longest)
        self._limiter = Limiter(_caps(generation, share), self._quota, clock)
        self._guard = Guard(self._limiter, generation.error_policy, loaded.config.resume_token, when_paused)
        self._tokenizer = TokenizerThread(model)

    async def run(self, datasets: list[OpenDataset], stop: asyncio.Event, grace: float) -> str:
        """Returns when all rows are settled or, after `stop` or a pause that ends it, what was in flight is.

        Returns:
            Why it is paused, in a sentence; empty when it is not.

        Raises:
            JobError: It cannot go on.
        """
        allow_connections(self._limiter.caps.total)
        writer = Writer(self._hold_for_storage)
        try:
            async with open_session() as session:
                with reporter(self._board, self._clock) as shown:
                    pool = EndpointPool(session, self._clock, self._connect_timeout, self._limiter.look_again)

                    def settled() -> None:
                        shown.settled()
                        admissions.settled()

                    asker = Asker(
                        pool=pool,
                        limiter=self._limiter,
                        quota=self._quota,
                        writer=writer,
                        board=self._board,
                        model=self._model,
                        tokenizer=self._tokenizer,
                        guard=self._guard,
                        retries=lambda: self._loaded.config.generation.retries,
                        short_prompt=self._short_prompt,
                        rng=random.Random(),  # noqa: S311 - jitter, not a secret
                        settled=settled,
                    )
                    admissions = Admissions(datasets, asker, self._share)
                    try:
                        await self._supervise(
                            pool, writer=writer, admissions=admissions, shown=shown, stop=stop, grace=grace
                        )
                    finally:
                        await writer.close()
                        shown.show()
                        warn_of_lengths(self._board)
        except BaseExceptionGroup as group:
            raise _cause(group) from group
        finally:
            self._tokenizer.close()
        return self._guard.paused

    async def _supervise(
        self,
        pool: EndpointPool,
        *,
        writer: Writer,
        admissions: Admissions,
        shown: Reporter,
        stop: asyncio.Event,
        grace: float,
    ) -> None:
        preflight = Preflight(
            pool,
            self._limiter,
            self._model,
            self._tokenizer,
            self._expectation(),
            alone=self._board.outlook.alone,
        )
        async with asyncio.TaskGroup() as group:
            fleet = Fleet(
                pool, preflight, group, route_for=self._route_for, stall_timeout=self._stall_timeout
            )
            fleet.use(self._loaded.config.endpoints, self._caps_of_servers())
            use = partial(self._use, fleet=fleet, admissions=admissions)
            tuner = Tuner(
                pool,
                self._board,
                Path(self._loaded.config.output.path),
                lambda limit: self._use_caps(Caps(limit, limit), admissions),
            )
            work = group.create_task(admissions.run())
            stopped = group.create_task(stop.wait())
            paused = group.create_task(self._guard.until_tripped())
            background = [
                stopped,
                paused,
                group.create_task(writer.run()),
                group.create_task(watch(self._path, self._loaded, use)),
                group.create_task(self._observe(pool, writer)),
                group.create_task(tuner.run(self._is_auto)),
                group.create_task(keep_reporting(self._board, self._clock, shown)),
            ]
            ends = {work, stopped, paused} if self._when_paused is WhenPaused.EXIT else {work, stopped}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not work.done() and not stopped.done():
                log.info("paused: waiting for %d answers in flight, then ending", pool.in_flight)
                admissions.stop()
                await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                log.info("stopping: %d answers in flight may take %.0f s to finish", pool.in_flight, grace)
                self._board.state = WorkerState.DRAINING
                admissions.stop()
                await asyncio.wait({work}, timeout=grace)
                admissions.give_up()
                await asyncio.wait({work})
            written = group.create_task(writer.until_written())
            await asyncio.wait({written, stopped}, return_when=asyncio.FIRST_COMPLETED)
            written.cancel()
            fleet.dismiss()
            for task in background:
                task.cancel()

    def _use(self, loaded: LoadedConfig[SynthJobConfig], fleet: Fleet, admissions: Admissions) -> None:
        """Puts another config in force: what may change while running does so here."""
        log.info("config %s is in force", loaded.hash)
        self._loaded = loaded
        self._board.config_hash = loaded.hash
        generation = loaded.config.generation
        self._quota.change(*_per_minute(generation, self._share), self._clock())
        if not self._is_auto() or not self._board.concurrency:
            self._use_caps(_caps(generation, self._share), admissions)
        self._guard.use(generation.error_policy, loaded.config.resume_token)
        fleet.use(loaded.config.endpoints, self._caps_of_servers())

    def _hold_for_storage(self, is_full: bool) -> None:
        """Asks nothing more while answers cannot be written."""
        if is_full:
            self._limiter.pause(Hold.STORAGE_FULL)
        else:
            self._limiter.resume(Hold.STORAGE_FULL)

    def _is_auto(self) -> bool:
        return self._loaded.config.generation.concurrency == AUTO

    def _use_caps(self, caps: Caps, admissions: Admissions) -> None:
        self._limiter.set_caps(caps)
        allow_connections(caps.total)
        admissions.use_caps()

    def _caps_of_servers(self) -> dict[str, int | None]:
        """This worker's part of the requests that each server may have."""
        return {
            endpoint.name: self._share.of_concurrency(endpoint.concurrency) if endpoint.concurrency else None
            for endpoint in self._loaded.config.endpoints
        }

    def _route_for(self, spec: EndpointSpec) -> Route:
        return route_for(spec.engine, self._loaded.config.generation.api)

    async def _observe(self, pool: EndpointPool, writer: Writer) -> None:
        """Keeps the board's state and message true; never returns.

        Raises:
            JobFailedError: None of the servers has been up for too long.
        """
        outage = Outage(self._clock())
        while True:
            self._board.in_flight, self._board.waiting = pool.in_flight, self._limiter.waiting
            self._board.servers = [each.progress() for each in pool.endpoints.values()]
            self._board.recent_errors, self._board.warning = self._guard.recent_errors, self._guard.warning
            if self._board.state is not WorkerState.DRAINING:
                self._board.state, self._board.message = _state_of(pool, self._guard, writer)
                self._end_if_long(outage, pool)
            await asyncio.sleep(0.2)

    def _end_if_long(self, outage: Outage, pool: EndpointPool) -> None:
        is_held = self._board.state in {WorkerState.PAUSED, WorkerState.STORAGE_FULL}
        states = [] if is_held else [endpoint.state for endpoint in pool.endpoints.values()]
        outage.check(
            states,
            self._clock(),
            limit=self._loaded.config.generation.outage_timeout,
            field="generation.outageTimeout",
            problem=self._board.message,
        )

    def _expectation(self) -> Expectation:
        datasets = datasets_of(self._loaded.config)
        arguments: list[dict[str, Any]] = []
        for dataset in datasets:
            if dataset.chat_template_kwargs not in arguments:
                arguments.append(dataset.chat_template_kwargs)
        return Expectation(
            template_arguments=tuple(arguments),
            longest_answer=max(dataset.sampling.max_completion_tokens for dataset in datasets),
            context_length=self._loaded.config.context_length,
        )

    def _short_prompt(self) -> int | None:
        generation = self._loaded.config.generation
        return None if generation.concurrency_short is None else generation.short_prompt_tokens

    def _connect_timeout(self) -> float:
        return seconds(self._loaded.config.generation.connect_timeout)

    def _stall_timeout(self) -> float:
        return seconds(self._loaded.config.generation.stall_timeout)


def _caps(generation: Generation, share: Share) -> Caps:
    if isinstance(generation.concurrency, str):
        return Caps(START, START)  # until more is measured
    total = generation.concurrency_short or generation.concurrency
    return Caps(long=share.of_concurrency(generation.concurrency), total=share.of_concurrency(total))


def _per_minute(generation: Generation, share: Share) -> tuple[float | None, float | None]:
    """This worker's part of the requests and tokens of a minute."""
    requests, tokens = generation.requests_per_minute, generation.tokens_per_minute
    return requests and requests / share.count, tokens and tokens / share.count


def _state_of(pool: EndpointPool, guard: Guard, writer: Writer) -> tuple[WorkerState, str]:
    if guard.paused:
        return WorkerState.PAUSED, guard.paused
    if writer.full:
        return WorkerState.STORAGE_FULL, writer.full
    states = {endpoint.state for endpoint in pool.endpoints.values()}
    if EndpointState.UP in states:
        return WorkerState.RUNNING, ""
    if EndpointState.PROVING in states:
        return WorkerState.PREFLIGHT, ""
    if not states:
        return WorkerState.WAITING, "waiting for endpoints: the config names none yet"
    problems = "; ".join(f"{endpoint.spec.name}: {endpoint.problem}" for endpoint in pool.endpoints.values())
    return WorkerState.WAITING, f"waiting for endpoints: {problems}"[:1024]


def _cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The reason why everything ended: a job's own error, if one is among them."""
    _, others = group.split(JobError)
    ours = group.subgroup(JobError)
    if ours is None or others is not None:
        return group
    cause: BaseException = ours
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    return cause
