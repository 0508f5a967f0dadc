"""Rows with states, and stores of them, for tests."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftmill_api.jobconfig import JobRun
from draftmill_api.record import RecordStatus
from draftmill_api.store import ComputedIn, RowFacts, StoreBinding
from draftmill_api.v1alpha1.extractrun import Backend, StateDtype
from draftmill_jobs.shared.settings import Share
from draftmill_jobs.store import StoreRow, StoreWriter

LAYER_IDS = [2, 3, 5, 8]
HIDDEN = 32
RUN = JobRun(kind="ExtractRun", name="states", uid="u1")
ALONE = Share(0, 1)


def binding(dtype: StateDtype = StateDtype.BFLOAT16, **changes: Any) -> StoreBinding:
    """What the tests' stores are bound to."""
    facts = {
        "model_fingerprint": "f" * 64,
        "layer_ids": LAYER_IDS,
        "hidden_size": HIDDEN,
        "dtype": dtype,
        "backend": Backend.VLLM,
    }
    return StoreBinding.model_validate({**facts, **changes})


def bfloat16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The upper halves of float32 values."""
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def row(number: int, tokens: int = 0, *, dataset: str = "B1", hidden: int = HIDDEN) -> StoreRow:
    """The row of this number, always the same: of 3 to 22 tokens when not told, the first two a prompt."""
    rng = np.random.default_rng(number)
    tokens = tokens or int(rng.integers(3, 23))
    ids = rng.integers(0, 1000, tokens, dtype=np.int32)
    values = rng.standard_normal((tokens, len(LAYER_IDS), hidden), dtype=np.float32)
    facts = RowFacts(
        dataset=dataset,
        id=f"{number:032x}",
        prompt_key=f"{number:032x}",
        turn=0,
        prompt_tokens=2,
        status=RecordStatus.OK,
        temperature=1.0,
    )
    mask = (np.arange(tokens) >= 2).astype(np.uint8)
    return StoreRow(facts, ids, mask, bfloat16(values), ids.copy(), ComputedIn.BFLOAT16)


def writer(folder: Path, **changes: Any) -> StoreWriter:
    """A writer whose shards are small."""
    settings: dict[str, Any] = {
        "shard_bytes": 20_000,
        "run": RUN,
        "share": ALONE,
        "header_bytes": 8192,
        **changes,
    }
    return StoreWriter(folder, settings.pop("binding", binding()), **settings)


def written(folder: Path, rows: Iterable[StoreRow], **changes: Any) -> Path:
    """A store of these rows, sealed."""
    with writer(folder, **changes) as store:
        for each in rows:
            store.append(each, _nothing)
        store.seal()
    return folder


def _nothing() -> None:
    """Nobody waits."""
