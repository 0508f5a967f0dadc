"""Backend Transformers: the model in this process, rows in batches of like length."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from typing import Final

from draftmill_api.progress import WorkerState
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.extract.backend import Work
from draftmill_jobs.extract.batching import batches
from draftmill_jobs.store import RowRefusedError

_BATCH_TOKENS: Final = 4096  # with padding; more is no faster on CPU and takes memory


def check_torch() -> None:
    """Says whether the backend could work here, without the seconds that an import takes.

    Raises:
        JobRefusedError: It could not.
    """
    missing = [name for name in ("torch", "transformers") if find_spec(name) is None]
    if missing:
        raise JobRefusedError(
            "TorchMissing",
            f"backend Transformers needs {missing[0]}, which is not installed here: choose an image with "
            "draftmill[train] (images.trainer of the chart), or backend VLLM",
        )


class TransformersBackend:
    """Computes states here."""

    async def run(self, work: Work) -> None:
        """Keeps or gives up every row, batch by batch.

        Raises:
            JobError: The model cannot be used, or the disk does not take states.
        """
        check_torch()
        from draftmill_jobs.extract.transformers_model import load_model  # noqa: PLC0415 - torch is optional

        config, prepared = work.config(), work.prepared
        model = await asyncio.to_thread(
            load_model,
            config.model,
            layers=prepared.model.layers,
            layer_ids=prepared.binding.layer_ids,
            gpus=config.gpus,
        )
        work.board.state = WorkerState.RUNNING
        for batch in batches(work.rows, min(_BATCH_TOKENS, config.in_flight_tokens)):
            if work.stop.is_set():
                return
            work.board.in_flight = len(batch)
            states = await asyncio.to_thread(model.states, [row.token_ids for row in batch])
            for row, each in zip(batch, states, strict=True):
                try:
                    await work.keeper.keep(
                        row, each, row.token_ids, computed_in=model.computed_in, durable=_nothing_staged
                    )
                except RowRefusedError as error:
                    await work.keeper.give_up(row, error.fault, error.message, tries=1)
            work.board.in_flight = 0


def _nothing_staged() -> None:
    """Nothing has to be deleted when a row is durable."""
