"""The extractor as a whole: opens the store, finds what is left to do, computes, and ends in order."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import time
from pathlib import Path
from typing import Final, assert_never

from draftmill_api.base import bytes_of
from draftmill_api.exitcode import ExitCode
from draftmill_api.extractjob import ExtractJobConfig
from draftmill_api.names import ATTEMPT_VARIABLE
from draftmill_api.progress import WorkerState
from draftmill_api.v1alpha1.extractrun import Backend as BackendName
from draftmill_api.v1alpha1.extractstatus import ExtractPlan, ExtractProgress
from draftmill_jobs.errors import JobError, JobFailedError, JobRefusedError
from draftmill_jobs.extract.backend import Backend, Work
from draftmill_jobs.extract.board import Board
from draftmill_jobs.extract.index import RowIndex
from draftmill_jobs.extract.keeper import Keeper
from draftmill_jobs.extract.planning import check_usable, survey_plan
from draftmill_jobs.extract.preparing import Prepared, prepare
from draftmill_jobs.extract.quarantine import Quarantine
from draftmill_jobs.extract.records import Row
from draftmill_jobs.extract.sampling import Sample
from draftmill_jobs.extract.selection import Survey
from draftmill_jobs.extract.transformers_backend import TransformersBackend
from draftmill_jobs.extract.vllm_backend import VllmBackend
from draftmill_jobs.model.facts import read_model
from draftmill_jobs.model.fingerprint import fingerprint
from draftmill_jobs.prompts.rows import owns
from draftmill_jobs.shared.config import LoadedConfig, watch
from draftmill_jobs.shared.http import serve
from draftmill_jobs.shared.settings import Share, share_from_environment
from draftmill_jobs.shared.signals import stop_on_signals
from draftmill_jobs.shared.waiting import until_free
from draftmill_jobs.store import StoreWriter
from draftmill_jobs.store.held import UnclaimedRows

log = logging.getLogger(__name__)

_LINE_SECONDS: Final = 10.0
_WHOLE: Final = Share(0, 1)


async def extract(
    path: Path, loaded: LoadedConfig[ExtractJobConfig], *, http_port: int | None, grace: float
) -> tuple[ExitCode, ExtractProgress]:
    """Stores the states of every row of this worker's share that the store does not have yet.

    Args:
        path: The config file, which is read again every second.
        loaded: What it says now.
        http_port: Where to serve progress; 0 chooses a port, None serves nothing.
        grace: Seconds that rows on their way may take after SIGTERM.

    Returns:
        `DONE`, or `INTERRUPTED` when SIGTERM left rows to do; and the counts.

    Raises:
        JobError: It cannot go on.
    """
    stop = stop_on_signals()
    share = share_from_environment()
    board = Board(
        run_uid=loaded.config.run.uid,
        worker=str(share),
        attempt=int(os.environ.get(ATTEMPT_VARIABLE, "1")),
        started=time.monotonic(),
        config_hash=loaded.hash,
        message="reading the model, the records and the store",
    )
    extractor = Extractor(path, loaded, share=share, board=board, stop=stop)
    async with serve(http_port, lambda: board.progress(time.monotonic())):
        await extractor.run(grace)
    if not board.is_complete and not stop.is_set():
        raise JobFailedError(
            "AccountingMismatch",
            f"{board.rows} rows are stored and {board.quarantined} quarantined, of {board.total}; another "
            "start asks for the rest",
        )
    board.state = WorkerState.DONE
    code = ExitCode.DONE if extractor.is_opened and board.is_complete else ExitCode.INTERRUPTED
    return code, board.extract_progress(time.monotonic())


class Extractor:
    """One run of the extractor.

    Attributes:
        is_opened: Store and records have been read, so that the board's counts are those of the share.
    """

    def __init__(
        self,
        path: Path,
        loaded: LoadedConfig[ExtractJobConfig],
        *,
        share: Share,
        board: Board,
        stop: asyncio.Event,
    ) -> None:
        self._path = path
        self._loaded = loaded
        self._share = share
        self._board = board
        self._stop = stop
        self.is_opened = False

    async def run(self, grace: float) -> None:
        """Returns when all rows are settled or, after SIGTERM, when those on their way are.

        Raises:
            JobError: It cannot go on.
        """
        prepared, plan = await asyncio.to_thread(self._prepare)

        def open_writer() -> StoreWriter:
            config = self._loaded.config
            return StoreWriter(
                prepared.folder,
                prepared.binding,
                shard_bytes=bytes_of(config.shard_size),
                run=config.run,
                share=self._share,
            )

        writer = await until_free(open_writer, self._say, self._stop)
        if writer is None:
            return
        with writer:
            quarantine = Quarantine(prepared.folder, self._loaded.config.run, self._share)
            try:
                self._board.failures = quarantine.failures
                index = await asyncio.to_thread(self._find_rows, prepared, plan, writer, quarantine)
                self.is_opened = True
                self._say("")
                keeper = Keeper(writer, quarantine, self._board, prepared.layout, plan.rows)
                if len(index):
                    await self._extract(prepared, index, keeper, grace)
                if self._board.is_complete:
                    await asyncio.to_thread(writer.seal)
            finally:
                quarantine.close()

    def _prepare(self) -> tuple[Prepared, ExtractPlan]:
        config = self._loaded.config
        if config.plan is None:
            prepared = prepare(config, read_model(config.model).facts)
            prepared.folder.mkdir(parents=True, exist_ok=True)
            return prepared, survey_plan(config, prepared)
        found = fingerprint(Path(config.model.path))
        if found != config.plan.model.fingerprint:
            raise JobRefusedError(
                "ModelMismatch",
                f"{config.model.path} has the fingerprint {found}, and the plan saw "
                f"{config.plan.model.fingerprint}: the model was changed since; restore it, or create the "
                "run anew, with another output.path",
            )
        return prepare(config, config.plan.model), config.plan

    def _find_rows(
        self, prepared: Prepared, plan: ExtractPlan, writer: StoreWriter, quarantine: Quarantine
    ) -> RowIndex:
        """Which rows of the share are neither stored nor given up; refuses a store with rows of others."""
        board, unclaimed = self._board, UnclaimedRows(prepared.folder)

        def is_done(row: Row) -> bool:
            unclaimed.claim(row.facts.key)
            if not owns(self._share, row.facts.id):
                return True
            board.total += 1
            board.total_tokens += row.tokens
            if writer.holds(row.facts.key, row.token_ids):
                board.stored(row.tokens, prepared.layout.row_bytes(row.tokens))
                return True
            is_given_up = row.facts.key in quarantine.rows
            board.quarantined += is_given_up
            return is_given_up

        survey, index = prepared.input.survey(self._loaded.config.max_rows, share=_WHOLE, is_done=is_done)
        check_usable(survey, prepared)
        _check_same(survey, plan)
        unclaimed.check_none_left(last=None)
        log.info(
            "%d of %d rows are in the store, %d quarantined; %d to do",
            board.rows,
            board.total,
            board.quarantined,
            len(index),
        )
        return index

    async def _extract(self, prepared: Prepared, index: RowIndex, keeper: Keeper, grace: float) -> None:
        work = Work(
            prepared=prepared,
            rows=prepared.input.read(index, index.longest_first()),
            sample=Sample.of(prepared.input, index),
            keeper=keeper,
            board=self._board,
            stop=self._stop,
            config=lambda: self._loaded.config,
        )
        try:
            async with asyncio.TaskGroup() as group:
                working = group.create_task(self._backend().run(work))
                stopped = group.create_task(self._stop.wait())
                background = [
                    stopped,
                    group.create_task(watch(self._path, self._loaded, self._use)),
                    group.create_task(self._keep_reporting()),
                ]
                await asyncio.wait({working, stopped}, return_when=asyncio.FIRST_COMPLETED)
                if not working.done():
                    log.info("stopping: rows on their way may take %.0f s to finish", grace)
                    self._board.state = WorkerState.DRAINING
                    await asyncio.wait({working}, timeout=grace)
                    working.cancel()
                for task in background:
                    task.cancel()
        except BaseExceptionGroup as raised:
            raise _cause(raised) from raised
        finally:
            log.info(self._board.line(time.monotonic()))

    def _backend(self) -> Backend:
        config = self._loaded.config
        match config.backend:
            case BackendName.TRANSFORMERS:
                return TransformersBackend()
            case BackendName.VLLM:
                return VllmBackend(_owner(config, self._share))
            case _:
                assert_never(config.backend)

    def _use(self, loaded: LoadedConfig[ExtractJobConfig]) -> None:
        """Puts another config in force: what may change while running is asked for where it is needed."""
        log.info("config %s is in force", loaded.hash)
        self._loaded = loaded
        self._board.config_hash = loaded.hash

    def _say(self, message: str) -> None:
        self._board.message = message

    async def _keep_reporting(self) -> None:
        """Samples the rate every second and logs a line every ten; never returns."""
        last = time.monotonic()
        while True:
            now = time.monotonic()
            self._board.sample(now)
            if now - last >= _LINE_SECONDS:
                last = now
                log.info(self._board.line(now))
            await asyncio.sleep(1.0)


def _owner(config: ExtractJobConfig, share: Share) -> str:
    """What no other worker has that may use the same staging folder: on a laptop, runs have no uid."""
    store = hashlib.sha256(os.fsencode(Path(config.output.path).resolve())).hexdigest()[:16]
    return f"{config.run.uid or store}-w{share.index}"


def _check_same(survey: Survey, plan: ExtractPlan) -> None:
    """The records must still be those that the plan looked at."""
    for what, planned, found in (
        ("rows", plan.rows, survey.rows),
        ("tokens", plan.tokens, survey.tokens),
        ("tokens in the longest row", plan.longest_row, survey.longest_row),
    ):
        if planned != found:
            raise JobRefusedError(
                "InputChanged",
                f"the records make {found} {what}, and the plan found {planned}: they were changed since; "
                "restore them, or create the run again, which plans anew",
            )


def _cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The reason why everything ended: a job's own error, if one is among them."""
    ours = group.subgroup(JobError)
    cause: BaseException = ours or group
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    return cause
