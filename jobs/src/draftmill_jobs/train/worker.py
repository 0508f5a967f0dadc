"""The trainer: one process of a training, from its config to a checkpoint or an exported drafter."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from draftmill_api.exitcode import ExitCode
from draftmill_api.jobconfig import JobRun
from draftmill_api.names import ATTEMPT_VARIABLE
from draftmill_api.progress import WorkerState
from draftmill_api.trainjob import TrainJobConfig
from draftmill_api.v1alpha1.trainstatus import TrainProgress
from draftmill_jobs.shared.config import LoadedConfig
from draftmill_jobs.shared.http import serve
from draftmill_jobs.shared.lock import FolderInUseError, LockHeldError, PartLock, this_process
from draftmill_jobs.shared.settings import share_from_environment
from draftmill_jobs.shared.signals import stop_on_signals
from draftmill_jobs.shared.threads import in_daemon_thread
from draftmill_jobs.shared.waiting import until_free
from draftmill_jobs.train.board import Board, evaluation_line
from draftmill_jobs.train.event_file import EventFile
from draftmill_jobs.train.folders import CHECKPOINTS
from draftmill_jobs.train.launching import LAUNCHER_VARIABLE
from draftmill_jobs.train.loop import StepReport
from draftmill_jobs.train.memory import keep_freed_memory
from draftmill_jobs.train.opening import open_input
from draftmill_jobs.train.settings import settings_of
from draftmill_jobs.train.tracking import Tracker, open_trackers
from draftmill_jobs.train.training import Beginning, Outcome, train
from draftmill_jobs.train.world import joined, rank_of_this_process

log = logging.getLogger(__name__)

_LINE_SECONDS: Final = 10.0


async def train_as_rank(
    loaded: LoadedConfig[TrainJobConfig], *, http_port: int | None
) -> tuple[ExitCode, TrainProgress | None]:
    """Trains, as the rank that the environment says; the first one of all serves, writes and reports.

    Args:
        loaded: The config.
        http_port: Where the first rank serves progress; 0 chooses a port, None serves nothing.

    Returns:
        `DONE`, or `INTERRUPTED` when SIGTERM left steps to do; and, of the first rank, how far it is.

    Raises:
        JobError: It cannot go on.
    """
    stop = stop_on_signals()
    keep_freed_memory()
    if rank_of_this_process():
        outcome = await _train(loaded.config, stop, _Silent())
        return _code(outcome), None
    board = Board(
        run_uid=loaded.config.run.uid,
        worker=str(share_from_environment()),
        attempt=int(os.environ.get(ATTEMPT_VARIABLE, "1")),
        started=time.monotonic(),
        config_hash=loaded.hash,
        message="reading the store, the target and the newest checkpoint",
    )
    async with serve(http_port, lambda: board.progress(time.monotonic())):
        output = Path(loaded.config.output.path)
        lock = await until_free(lambda: _lock(output, loaded.config.run), board.say, stop)
        if lock is None:
            return ExitCode.INTERRUPTED, board.train_progress(time.monotonic())
        try:
            events, services = open_trackers(output, loaded.config.run.name, os.environ, time.time())
            with contextlib.ExitStack() as closing:
                for tracker in (events, *services):
                    closing.callback(tracker.close)
                outcome = await _train(loaded.config, stop, _Reporter(board, events, services))
        finally:
            lock.release()
    if outcome is not None:
        board.saved(outcome.state)
    board.state = WorkerState.DONE
    return _code(outcome), board.train_progress(time.monotonic())


async def _train(config: TrainJobConfig, stop: asyncio.Event, reporter: _Silent) -> Outcome | None:
    """Trains in a thread; None when SIGTERM came while this process still waited for the others.

    The thread then waits on, where nothing can wake it, and ends with the process.
    """
    has_met = threading.Event()
    working = in_daemon_thread(lambda: _train_here(config, stop, reporter, has_met))
    stopped = asyncio.create_task(stop.wait())
    waiting: set[asyncio.Future[Any]] = {working, stopped}
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if not working.done() and not has_met.is_set():
        return None
    return await working


def _train_here(
    config: TrainJobConfig, stop: asyncio.Event, reporter: _Silent, has_met: threading.Event
) -> Outcome:
    opened = open_input(config)
    launcher = os.environ.get(LAUNCHER_VARIABLE)

    def should_stop() -> bool:
        return stop.is_set() or (launcher is not None and os.getppid() != int(launcher))

    with joined(config.gpus_per_node) as world:
        has_met.set()
        return train(
            settings_of(config),
            opened.rows,
            opened.rows.shape,
            world,
            should_stop=should_stop,
            begun=reporter.begun,
            report=reporter.stepped,
        )


class _Silent:
    """What all ranks but the first say."""

    def begun(self, beginning: Beginning) -> None:
        """Nothing."""

    def stepped(self, report: StepReport) -> None:
        """Nothing."""


@dataclass
class _Reporter(_Silent):
    """Tells board, event file, and every few seconds log and services."""

    board: Board
    events: EventFile
    services: Sequence[Tracker]
    logged: float = 0.0

    def begun(self, beginning: Beginning) -> None:
        """The first step is next."""
        self.board.begun(beginning, time.monotonic())

    def stepped(self, report: StepReport) -> None:
        """A step is done."""
        now = time.monotonic()
        self.board.stepped(report, now)
        scalars, wall = _scalars(report), time.time()
        self.events.add(scalars, step=report.step, now=wall)
        is_due = now - self.logged >= _LINE_SECONDS or report.step == report.total
        if report.evaluation is not None:
            log.info(evaluation_line(report.evaluation.measured(), report.step))
        if is_due:
            self.logged = now
            log.info(self.board.line(now))
        if is_due or report.evaluation is not None:
            for service in self.services:
                service.add(scalars, step=report.step, now=wall)


def _scalars(report: StepReport) -> dict[str, float]:
    found = {
        **{f"loss/{step}": loss for step, loss in enumerate(report.losses)},
        "learning_rate": report.learning_rate,
        "gradient_norm": report.gradient_norm,
        "data_wait": report.data_wait,
        "tokens": report.state.tokens,
    }
    if report.evaluation is not None:
        measured = report.evaluation.measured()
        name = measured.yardstick.value[0].lower() + measured.yardstick.value[1:]
        found |= {f"held_out/{name}": measured.length}
        found |= {f"held_out/loss/{step}": loss for step, loss in enumerate(report.evaluation.losses)}
        found |= {f"held_out/accepted/{step}": share for step, share in enumerate(measured.by_position)}
    return found


def _lock(output: Path, run: JobRun) -> PartLock:
    output.mkdir(parents=True, exist_ok=True)
    me = this_process(run, 1)
    try:
        return PartLock(output / CHECKPOINTS, me)
    except LockHeldError as held:
        raise FolderInUseError(output, held.holder, me) from held


def _code(outcome: Outcome | None) -> ExitCode:
    return ExitCode.DONE if outcome is not None and outcome.finished else ExitCode.INTERRUPTED
