"""A training from its config to an exported drafter: `train(config, ...)` in each of its processes."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch

from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.train.attention import TttAttention, block_attention
from draftmill_jobs.train.checkpoint import Checkpoints, TrainState
from draftmill_jobs.train.data import Reading, RowCorruptError, RowSource
from draftmill_jobs.train.evaluation import Evaluator, yardstick_for
from draftmill_jobs.train.export import Trained, export_flat
from draftmill_jobs.train.layers import DraftEngine, LayerIdError, is_deepseek_family, layer_ids_for
from draftmill_jobs.train.loop import Loop, StepReport
from draftmill_jobs.train.model import Drafter
from draftmill_jobs.train.optimiser import Optimiser
from draftmill_jobs.train.packing import Batch, Schedule, is_held_out
from draftmill_jobs.train.settings import Precision, TrainConfig
from draftmill_jobs.train.starting import Start, StoreShape, fresh_start, warm_start
from draftmill_jobs.train.step import Unroller
from draftmill_jobs.train.target import TargetError, TargetTensors, read_target, read_target_config
from draftmill_jobs.train.teacher import Teacher
from draftmill_jobs.train.tensors import TensorFolderError
from draftmill_jobs.train.vocabulary import count_tokens
from draftmill_jobs.train.world import World

log = logging.getLogger(__name__)

CHECKPOINTS: Final = "checkpoints"
DRAFTER: Final = "drafter"
_DTYPES: Final = {Precision.FLOAT32: torch.float32, Precision.BFLOAT16: torch.bfloat16}
_LEAST_COVERAGE: Final = 0.95


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a training ended.

    Attributes:
        finished: Whether all steps are done, and the drafter is exported; else it was told to stop.
        coverage: Share of the answers' tokens that the drafter can say.
    """

    finished: bool
    state: TrainState
    coverage: float


@dataclass(frozen=True, slots=True)
class _Split:
    """Numbers of the rows to train on and to evaluate on."""

    training: Batch
    held_out: Batch


def train(
    config: TrainConfig,
    source: RowSource,
    store: StoreShape,
    world: World,
    *,
    should_stop: Callable[[], bool],
    report: Callable[[StepReport], None],
) -> Outcome:
    """Trains, from the newest checkpoint when there is one, and exports the best.

    Args:
        config: What to do; `store` in it has been opened as `source`.
        source: The rows.
        store: Their shape.
        world: The processes.
        should_stop: Asked before each step; then state is saved and the training ends.
        report: Told after each step.

    Raises:
        JobRefusedError: Config, checkpoint, target and store do not go together.
        JobFailedError: Data or disk are broken, or the loss is no number.
    """
    settings, target = config.training, _target(Path(config.target), store)
    split = _split(source, settings.held_out_percent)
    counts = _count(source, split.training, target.vocab_size)
    if config.init is not None:
        start = warm_start(config.init, target, store)
    else:
        assert config.scratch is not None  # noqa: S101 - exactly one, says the type
        start = fresh_start(config.scratch, target, store, counts, settings.seed)
    coverage = start.vocabulary.coverage(counts)
    if coverage < _LEAST_COVERAGE:
        log.warning("the drafter can say %.1f %% of the answers' tokens only", 100 * coverage)

    rows = tuple(source.rows)
    keys, lengths = [rows[i].key for i in split.training], [rows[i].tokens for i in split.training]
    packed = Schedule.of(
        keys, lengths, tokens=settings.tokens_per_batch, seed=settings.seed, epochs=settings.epochs
    ).renumbered(split.training)
    unroller = _unroller(
        start, target, world.device, _DTYPES[settings.precision], max(r.tokens for r in rows)
    )
    optimiser = Optimiser(unroller.drafter, settings, start.weights)
    checkpoints = Checkpoints(Path(config.output) / CHECKPOINTS, settings.keep_checkpoints)
    loop = Loop(
        world=world,
        settings=settings,
        unroller=unroller,
        optimiser=optimiser,
        reading=Reading(
            source,
            settings.ttt_length,
            (start.config.states, store.hidden_size),
            settings.noise,
            settings.seed,
        ),
        rows=rows,
        schedule=packed,
        held_out=split.held_out,
        evaluator=Evaluator(
            unroller,
            start.vocabulary,
            rows,
            yardstick_for(rows[i] for i in split.held_out),
            settings.ttt_length,
        ),
        checkpoints=checkpoints,
        should_stop=should_stop,
        report=report,
    )
    state, finished = loop.run(_resume(loop, _identity(config, keys, start)))
    if finished and world.is_first:
        _export(config, start, store.layer_ids, loop, state)
    return Outcome(finished, state, coverage)


def _target(folder: Path, store: StoreShape) -> TargetTensors:
    """Reads the target, and sees that a drafter for it can be exported before it is trained."""
    try:
        target = read_target(folder)
        for engine in DraftEngine:
            layer_ids_for(engine, store.layer_ids, target_is_deepseek=is_deepseek_family(target.config))
    except (TargetError, TensorFolderError, LayerIdError) as error:
        raise JobRefusedError("TargetNotUsable", str(error)) from error
    return target


def _split(source: RowSource, percent: float) -> _Split:
    held_out = [is_held_out(row.prompt_key, percent) for row in source.rows]
    split = _Split(
        tuple(i for i, out in enumerate(held_out) if not out),
        tuple(i for i, out in enumerate(held_out) if out),
    )
    if not split.training:
        raise JobRefusedError("NothingToTrainOn", f"all {len(held_out)} rows are held out, or there is none")
    return split


def _count(source: RowSource, rows: Batch, vocabulary: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """How often each token stands in the answers that are trained on."""
    counts = np.zeros(vocabulary, np.int64)
    for number in rows:
        try:
            row = source.read(number)
        except RowCorruptError:
            continue  # counted when its batch comes
        counts += count_tokens(row.token_ids, row.mask, vocabulary)
    return counts


def _unroller(
    start: Start, target: TargetTensors, device: torch.device, dtype: torch.dtype, longest: int
) -> Unroller:
    drafter = Drafter(start.config, target.embeddings.to(device, dtype), dtype).to(device)
    drafter.load_state_dict(dict(start.weights))
    tables = start.config.rope.tables(longest + 16, start.config.head_dim)
    on_device = (tables[0].to(device), tables[1].to(device))
    return Unroller(drafter, Teacher(target, start.vocabulary, device, dtype), _attention(device), on_device)


def _attention(device: torch.device) -> TttAttention:
    if device.type == "cpu":
        return block_attention
    from draftmill_jobs.train.flex import flex_ttt_attention  # noqa: PLC0415 - compiles on import

    return flex_ttt_attention


def _identity(config: TrainConfig, keys: list[str], start: Start) -> str:
    """Hash of all that the steps depend on."""
    digest = hashlib.sha256(
        config.training.model_dump_json(exclude={"save_every_steps", "keep_checkpoints"}).encode()
    )
    digest.update(json.dumps([keys, repr(start.config)]).encode())
    digest.update(start.vocabulary.target_ids.tobytes())
    return digest.hexdigest()


def _resume(loop: Loop, identity: str) -> TrainState:
    """Puts the newest checkpoint that all processes have in place, if there is one."""
    step = loop.world.newest_of_all(loop.checkpoints.steps())
    if step is None:
        return TrainState(step=0, identity=identity)
    state = loop.checkpoints.state(step)
    if state.identity != identity:
        raise JobRefusedError(
            "TrainingDiffers",
            f"the checkpoints in {loop.checkpoints.folder} are of other rows, settings or another start; "
            "choose another output, or remove them",
        )
    loop.unroller.drafter.load_state_dict(loop.checkpoints.weights(step))
    loop.optimiser.restore(loop.checkpoints.moments(step))
    log.info("going on after step %d", step)
    return state


def _export(config: TrainConfig, start: Start, ids: tuple[int, ...], loop: Loop, state: TrainState) -> None:
    """The best checkpoint by evaluation; the last one when nothing was held out."""
    step = state.step if state.best_step is None else state.best_step
    is_deepseek = is_deepseek_family(read_target_config(Path(config.target)))
    weights = loop.checkpoints.weights(step)
    trained = Trained(start.config, start.vocabulary, weights, ids, is_deepseek)
    export_flat(trained, Path(config.output) / DRAFTER)
