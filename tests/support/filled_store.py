"""A store as an extractor leaves it, of random states: no model and no server."""

from __future__ import annotations

import numpy as np

from draftmill_api.store import ComputedIn
from draftmill_jobs.extract.preparing import prepare
from draftmill_jobs.model.facts import read_model
from draftmill_jobs.store import StoreRow, StoreWriter
from tests.support.extract_job import ExtractJob
from tests.support.states import ALONE


def fill(job: ExtractJob, *, seal: bool = True) -> None:
    """Stores states of every row that the job selects now and that is not there yet.

    Args:
        job: Its records, run, layers, dtype and output.
        seal: Whether the last shard is sealed, or stays open as when a worker is killed.
    """
    config = job.config
    prepared = prepare(config, read_model(config.model).facts)
    numbers = np.random.default_rng(0)
    with StoreWriter(
        prepared.folder, prepared.binding, shard_bytes=1 << 20, run=config.run, share=ALONE, header_bytes=8192
    ) as store:
        _, index = prepared.input.survey(
            config.max_rows, share=ALONE, is_done=lambda row: store.holds(row.facts.key, row.token_ids)
        )
        for row in prepared.input.read(index, range(len(index))):
            shape = (row.tokens, prepared.layout.states, prepared.layout.hidden_size)
            states = numbers.standard_normal(shape, dtype=np.float32)
            store.append(
                StoreRow(row.facts, row.token_ids, row.loss_mask, states, row.token_ids, ComputedIn.FLOAT32),
                _nothing_staged,
            )
        if seal:
            store.seal()


def _nothing_staged() -> None:
    """Nothing has to be deleted when a row is durable."""
