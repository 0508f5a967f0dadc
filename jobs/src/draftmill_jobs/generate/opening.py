"""Opening the datasets' folders: counting rows, and waiting for whoever is still writing there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from draftmill_api.record import row_id
from draftmill_jobs.errors import JobFailedError, JobRefusedError
from draftmill_jobs.generate.board import Board
from draftmill_jobs.generate.resume import OpenDataset, open_dataset
from draftmill_jobs.model.facts import TargetModel
from draftmill_jobs.prompts.rows import count_rows, owns, read_rows
from draftmill_jobs.prompts.sources import open_source
from draftmill_jobs.shared.config import LoadedConfig
from draftmill_jobs.shared.lock import FolderInUseError
from draftmill_jobs.shared.settings import DatasetSettings, Share, datasets_of

_EARLIER_ATTEMPT = 120.0  # seconds that an earlier attempt on another node may take to let go of its files
_OTHER_RUN = 45.0  # seconds that another run may take: one that was deleted drains its answers
_LOOK_AGAIN = 0.5  # seconds between looks at a folder that is in use


@asynccontextmanager
async def open_all(
    loaded: LoadedConfig, model: TargetModel, share: Share, board: Board, stop: asyncio.Event
) -> AsyncIterator[list[OpenDataset]]:
    """Opens every dataset's folder and lets go of the locks in the end."""
    opened: list[OpenDataset] = []
    async with AsyncExitStack() as locks:
        for settings in datasets_of(loaded.config):
            dataset = await _open(settings, loaded, model, share=share, board=board, stop=stop)
            if dataset is not None:
                locks.callback(dataset.lock.release)
                board.tallies.append(dataset.tally)
                opened.append(dataset)
        board.message = ""
        yield opened


async def _open(
    settings: DatasetSettings,
    loaded: LoadedConfig,
    model: TargetModel,
    *,
    share: Share,
    board: Board,
    stop: asyncio.Event,
) -> OpenDataset | None:
    """Opens one folder, and waits a while for a process to end that is writing there; None after `stop`."""
    opening = partial(
        open_dataset,
        settings,
        total=await asyncio.to_thread(_count, settings, share),
        model=model,
        run=loaded.config.run,
        share=share,
        failures=board.failures,
    )
    began = time.monotonic()
    while not stop.is_set():
        try:
            return await asyncio.to_thread(opening)
        except FolderInUseError as error:
            waited = 0.0 if error.is_passing else time.monotonic() - began
            if error.same_run and waited > _EARLIER_ATTEMPT:
                raise JobFailedError("FolderInUse", f"{error}, an earlier attempt of this run") from error
            if not error.same_run and waited > _OTHER_RUN:
                raise JobRefusedError(
                    "FolderInUse", f"{error}; choose another output.path or end that run"
                ) from error
            board.message = f"waiting: {error}"
            await asyncio.sleep(_LOOK_AGAIN)
    return None


def _count(settings: DatasetSettings, share: Share) -> int:
    """Rows of this worker; with several, each row's identity must be made to know whose it is."""
    source = open_source(settings.source)
    if share.count == 1:
        return count_rows(settings, source)
    samples = range(settings.sampling.samples_per_prompt)
    return sum(
        owns(share, row_id(row.key, sample)) for row in read_rows(settings, source) for sample in samples
    )
