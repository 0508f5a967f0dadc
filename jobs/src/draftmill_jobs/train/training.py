"""A training from its config to an exported drafter: `train(config, ...)` in each of its processes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

from draftmill_api.v1alpha1.draftertrain import Precision
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.train.checkpoint import Checkpoints, TrainState, is_of
from draftmill_jobs.train.data import Reading, RowSource
from draftmill_jobs.train.evaluation import Evaluator, yardstick_for
from draftmill_jobs.train.export import Trained, export_flat
from draftmill_jobs.train.folders import CHECKPOINTS, DRAFTER
from draftmill_jobs.train.loop import Loop, StepReport
from draftmill_jobs.train.making import make_unroller
from draftmill_jobs.train.optimiser import Optimiser
from draftmill_jobs.train.preparing import LEAST_COVERAGE, Prepared, prepare
from draftmill_jobs.train.settings import TrainConfig
from draftmill_jobs.train.starting import Start, StoreShape, fresh_start, warm_start
from draftmill_jobs.train.step import Unroller
from draftmill_jobs.train.target import TargetTensors, read_target
from draftmill_jobs.train.world import World

log = logging.getLogger(__name__)

_DTYPES: Final = {Precision.FLOAT32: torch.float32, Precision.BFLOAT16: torch.bfloat16}


@dataclass(frozen=True, slots=True)
class Beginning:
    """What is known before the first step of this process.

    Attributes:
        state: Where the training is.
        total: Optimiser steps of all epochs.
        coverage: Share of the answers' tokens that the drafter can say.
    """

    state: TrainState
    total: int
    coverage: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a training ended.

    Attributes:
        finished: Whether all steps are done, and the drafter is exported; else it was told to stop.
        state: At the end.
        coverage: Share of the answers' tokens that the drafter can say.
    """

    finished: bool
    state: TrainState
    coverage: float


def train(
    config: TrainConfig,
    source: RowSource,
    store: StoreShape,
    world: World,
    *,
    should_stop: Callable[[], bool],
    begun: Callable[[Beginning], None],
    report: Callable[[StepReport], None],
) -> Outcome:
    """Trains, from the newest checkpoint when there is one, and exports the best.

    Args:
        config: What to do.
        source: The rows.
        store: Their shape.
        world: The processes.
        should_stop: Asked before each step; then state is saved and the training ends.
        begun: Told once, before the first step.
        report: Told after each step.

    Raises:
        JobRefusedError: Config, checkpoint, target and store do not go together.
        JobFailedError: Data or disk are broken, another process is lost, or the loss is no number.
    """
    prepared = prepare(config, source, store)
    if prepared.coverage < LEAST_COVERAGE:
        log.warning("the drafter can say %.1f %% of the answers' tokens only", 100 * prepared.coverage)
    target = read_target(Path(config.target))
    start = _start(prepared, target)
    unroller = _unroller(prepared, start, target, world.device)
    settings = config.training
    loop = Loop(
        world=world,
        settings=settings,
        unroller=unroller,
        optimiser=Optimiser(unroller.drafter, settings, start.weights),
        reading=_reading(prepared, source),
        rows=prepared.rows,
        schedule=prepared.schedule,
        held_out=prepared.split.held_out,
        evaluator=_evaluator(prepared, unroller),
        checkpoints=Checkpoints(Path(config.output) / CHECKPOINTS, settings.keep_checkpoints),
        should_stop=should_stop,
        report=report,
    )
    state = _resume(loop, prepared)
    begun(Beginning(state, len(prepared.schedule.positions), prepared.coverage))
    state, finished = loop.run(state)
    if finished and world.is_first:
        step = taken_step(state)
        export_flat(exported(prepared, loop.checkpoints.weights(step)), Path(config.output) / DRAFTER)
    return Outcome(finished, state, prepared.coverage)


def taken_step(state: TrainState) -> int:
    """Of which checkpoint the drafter is made: the best by evaluation; the last when nothing was held out."""
    return state.step if state.best_step is None else state.best_step


def exported(prepared: Prepared, weights: dict[str, torch.Tensor]) -> Trained:
    """What is written for engines."""
    return Trained(prepared.start.config, prepared.start.vocabulary, weights, prepared.engine_ids)


def _start(prepared: Prepared, target: TargetTensors) -> Start:
    config = prepared.config
    if config.init is not None:
        return warm_start(config.init, prepared.start)
    return fresh_start(prepared.start, target.head, config.training.seed)


def _unroller(prepared: Prepared, start: Start, target: TargetTensors, device: torch.device) -> Unroller:
    dtype = _DTYPES[prepared.config.training.precision]
    return make_unroller(start, target, device, dtype, max(row.tokens for row in prepared.rows))


def _reading(prepared: Prepared, source: RowSource) -> Reading:
    settings = prepared.config.training
    shape = (prepared.start.config.states, prepared.store.hidden_size)
    return Reading(source, settings.ttt_length, shape, settings.noise, settings.seed)


def _evaluator(prepared: Prepared, unroller: Unroller) -> Evaluator:
    yardstick = yardstick_for(prepared.rows[i] for i in prepared.split.held_out)
    steps = prepared.config.training.ttt_length
    return Evaluator(unroller, prepared.start.vocabulary, prepared.rows, yardstick, steps)


def _resume(loop: Loop, prepared: Prepared) -> TrainState:
    """Puts the newest checkpoint that all processes have in place, if there is one."""
    step = loop.world.newest_of_all(loop.checkpoints.steps())
    if step is None:
        return TrainState(step=0, identity=prepared.identity, origin=prepared.origin)
    state = loop.checkpoints.state(step)
    if not is_of(state, prepared.identity, prepared.origin):
        raise JobRefusedError(
            "TrainingDiffers",
            f"the checkpoints in {loop.checkpoints.folder} are of other rows or states, settings or another "
            "start; choose another output, or remove them",
        )
    loop.unroller.drafter.load_state_dict(loop.checkpoints.weights(step))
    loop.optimiser.restore(loop.checkpoints.moments(step))
    log.info("going on after step %d", step)
    return state
