"""What plan, trainer and finish derive alike from config, store and target, before any weight is read."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.shared.files import sha256_of
from draftmill_jobs.train.data import RowInfo, RowSource
from draftmill_jobs.train.layers import DraftEngine, LayerIdError, is_deepseek_family, layer_ids_for
from draftmill_jobs.train.packing import Batch, Schedule, is_held_out
from draftmill_jobs.train.settings import TrainConfig
from draftmill_jobs.train.starting import PlannedStart, StoreShape, plan_fresh_start, plan_warm_start
from draftmill_jobs.train.target import TargetError, TargetShape, look_at_target
from draftmill_jobs.train.tensors import TensorFolderError
from draftmill_jobs.train.vocabulary import count_tokens

LEAST_COVERAGE: Final = 0.95
"""Share of the answers' tokens below which a draft vocabulary deserves a warning."""


@dataclass(frozen=True, slots=True)
class Split:
    """Numbers of the rows to train on and to evaluate on."""

    training: Batch
    held_out: Batch


@dataclass(frozen=True, eq=False)
class Prepared:
    """A training, ready to be planned, done or checked.

    Attributes:
        rows: Of the whole store.
        store: Their shape.
        engine_ids: The layer ids that each engine's config will have.
        start: What the drafter will be.
        coverage: Share of the training answers' tokens that it can say.
        schedule: All batches.
        identity: Hash of all that the steps depend on, but for what `origin` is of.
    """

    config: TrainConfig
    rows: tuple[RowInfo, ...]
    store: StoreShape
    target: TargetShape
    engine_ids: dict[DraftEngine, tuple[int, ...]]
    split: Split
    start: PlannedStart
    coverage: float
    schedule: Schedule
    identity: str

    @cached_property
    def origin(self) -> str:
        """Hash of the values of states and weights: of the store's rows, and of the files to start from."""
        digest = hashlib.sha256(json.dumps([self.store.layer_ids, self.store.hidden_size]).encode())
        for row in self.rows:
            digest.update(row.hash.encode())
        if self.config.init is not None:
            for path in sorted(Path(self.config.init.path).glob("*.safetensors")):
                digest.update(sha256_of(path).encode())
        return digest.hexdigest()


def prepare(config: TrainConfig, source: RowSource, store: StoreShape) -> Prepared:
    """Sees that config, target, store and start go together.

    Raises:
        JobRefusedError: They do not.
    """
    settings, target = config.training, _look_at_target(Path(config.target), store)
    engine_ids = _engine_ids(config, target, store)
    rows = tuple(source.rows)
    split = _split(rows, settings.held_out_percent)
    counts = _count(source, split.training, target.vocab_size)
    if config.init is not None:
        start = plan_warm_start(config.init, target, store)
    else:
        assert config.scratch is not None  # noqa: S101 - exactly one, says the type
        start = plan_fresh_start(config.scratch, target, store, counts)
    keys, lengths = [rows[i].key for i in split.training], [rows[i].tokens for i in split.training]
    schedule = Schedule.of(
        keys, lengths, tokens=settings.tokens_per_batch, seed=settings.seed, epochs=settings.epochs
    ).renumbered(split.training)
    return Prepared(
        config=config,
        rows=rows,
        store=store,
        target=target,
        engine_ids=engine_ids,
        split=split,
        start=start,
        coverage=start.vocabulary.coverage(counts),
        schedule=schedule,
        identity=_identity(config, keys, start),
    )


def _look_at_target(folder: Path, store: StoreShape) -> TargetShape:
    try:
        target = look_at_target(folder)
    except (TargetError, TensorFolderError) as error:
        raise JobRefusedError("TargetNotUsable", str(error)) from error
    if target.hidden_size != store.hidden_size:
        raise JobRefusedError(
            "ModelMismatch",
            f"the states have the width {store.hidden_size}, and those of {folder} have {target.hidden_size}",
        )
    return target


def _engine_ids(
    config: TrainConfig, target: TargetShape, store: StoreShape
) -> dict[DraftEngine, tuple[int, ...]]:
    """Sees that a drafter can be exported before it is trained."""
    told = {DraftEngine.VLLM: config.export.vllm, DraftEngine.SGLANG: config.export.sglang}
    is_deepseek = is_deepseek_family(target.config)
    try:
        ids = {
            engine: tuple(written or layer_ids_for(engine, store.layer_ids, target_is_deepseek=is_deepseek))
            for engine, written in told.items()
        }
    except LayerIdError as error:
        raise JobRefusedError("TargetNotUsable", str(error)) from error
    for engine, written in ids.items():
        if len(written) != len(store.layer_ids):
            raise JobRefusedError(
                "LayersInvalid",
                f"export.layerIds.{engine} has {list(written)}, and the drafter takes the states of "
                f"{len(store.layer_ids)} layers",
            )
    return ids


def _split(rows: tuple[RowInfo, ...], percent: float) -> Split:
    held_out = [is_held_out(row.split_key, percent) for row in rows]
    split = Split(
        tuple(i for i, out in enumerate(held_out) if not out),
        tuple(i for i, out in enumerate(held_out) if out),
    )
    if not split.training:
        raise JobRefusedError("NothingToTrainOn", f"all {len(held_out)} rows are held out, or there is none")
    return split


def _count(source: RowSource, rows: Batch, vocabulary: int) -> NDArray[np.int64]:
    """How often each token stands in the answers that are trained on."""
    counts = np.zeros(vocabulary, np.int64)
    for number in rows:
        counts += count_tokens(source.answer(number), vocabulary)
    return counts


def _identity(config: TrainConfig, keys: list[str], start: PlannedStart) -> str:
    digest = hashlib.sha256(
        config.training.model_dump_json(exclude={"save_every_steps", "keep_checkpoints"}).encode()
    )
    digest.update(json.dumps([keys, repr(start.config)]).encode())
    digest.update(start.vocabulary.target_ids.tobytes())
    return digest.hexdigest()
