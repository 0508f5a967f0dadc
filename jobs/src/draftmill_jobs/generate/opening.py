"""Opening the datasets' folders: reading prompts, and waiting for whoever is still writing there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial

from draftmill_api.jobconfig import SynthJobConfig
from draftmill_api.progress import WorkerState
from draftmill_jobs.generate.board import Board
from draftmill_jobs.generate.resume import OpenDataset, open_dataset
from draftmill_jobs.model.facts import TargetModel
from draftmill_jobs.output.roots import own_output
from draftmill_jobs.prompts.index import PromptIndex, load_index, read_prompts
from draftmill_jobs.shared.config import LoadedConfig
from draftmill_jobs.shared.settings import DatasetSettings, Share, datasets_of
from draftmill_jobs.shared.storage import until_room
from draftmill_jobs.shared.waiting import until_free


async def with_own_output(
    loaded: LoadedConfig[SynthJobConfig], model: TargetModel, board: Board, stop: asyncio.Event
) -> LoadedConfig[SynthJobConfig]:
    """The config with the folder that its answers belong to; as it is after `stop`."""
    finding = partial(asyncio.to_thread, own_output, loaded.config, model)
    found = await until_room(finding, partial(_say_full, board), stop)
    return loaded if found is None else replace(loaded, config=found)


@asynccontextmanager
async def open_all(
    loaded: LoadedConfig[SynthJobConfig], model: TargetModel, share: Share, board: Board, stop: asyncio.Event
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
    loaded: LoadedConfig[SynthJobConfig],
    model: TargetModel,
    *,
    share: Share,
    board: Board,
    stop: asyncio.Event,
) -> OpenDataset | None:
    """Opens one folder, and waits a while for a process to end that is writing there; None after `stop`."""
    prompts = await asyncio.to_thread(_read_prompts, settings)
    opening = partial(
        open_dataset,
        settings,
        prompts,
        model=model,
        run=loaded.config.run,
        share=share,
        failures=board.failures,
    )

    def say(message: str) -> None:
        board.message = message

    return await until_room(lambda: until_free(opening, say, stop), partial(_say_full, board), stop)


def _say_full(board: Board, message: str) -> None:
    board.state = WorkerState.STORAGE_FULL if message else WorkerState.WAITING
    board.message = message


def _read_prompts(settings: DatasetSettings) -> PromptIndex:
    known = load_index(settings.folder)
    return read_prompts(settings, [known] if known is not None else [])
