"""The look at store, target and start before any trainer takes a GPU."""

from __future__ import annotations

import logging
import math
import shutil
from pathlib import Path
from typing import Final

from draftmill_api.trainjob import TrainJobConfig
from draftmill_api.v1alpha1.trainstatus import TrainPlan
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.evaluate.prompts import check_askable
from draftmill_jobs.plan.download import download_model
from draftmill_jobs.shared.formats import byte_size
from draftmill_jobs.shared.write_test import try_to_write
from draftmill_jobs.train.evaluation import yardstick_for
from draftmill_jobs.train.export import engine_folders
from draftmill_jobs.train.folders import CHECKPOINTS, DRAFTER
from draftmill_jobs.train.layers import DraftEngine
from draftmill_jobs.train.opening import Opened, open_input
from draftmill_jobs.train.preparing import LEAST_COVERAGE, Prepared, prepare
from draftmill_jobs.train.settings import settings_of
from draftmill_jobs.train.starting import expected_shapes

log = logging.getLogger(__name__)

_CHECKPOINT_BYTES: Final = 4 + 8  # of a weight: float32, and two moments
_DRAFTER_BYTES: Final = 2


def plan(config: TrainJobConfig) -> TrainPlan:
    """Looks at everything a training needs.

    Raises:
        JobRefusedError: Something is missing, cannot be used, or does not fit.
    """
    output = Path(config.output.path)
    try_to_write(output)
    if config.target.hugging_face is not None:
        download_model(Path(config.target.path), config.target.hugging_face)
    opened = open_input(config)
    if config.evaluation is not None:
        check_askable(
            opened.store,
            config.evaluation,
            percent=config.held_out_percent,
            model_context=opened.manifest.model.context_length,
        )
    prepared = prepare(settings_of(config), opened.rows, opened.rows.shape)
    found = _plan(opened, prepared, shutil.disk_usage(output).free)
    _check_room(output, found)
    log.info(
        "%d rows of %d tokens to train on, %d held out, in %d steps; %d weights, of which the drafter says "
        "%d tokens, %.1f %% of the answers'",
        found.rows,
        found.tokens,
        found.held_out_rows,
        found.steps,
        found.parameters,
        found.draft_vocabulary_size,
        100 * prepared.coverage,
    )
    if prepared.coverage < LEAST_COVERAGE:
        log.warning("the drafter can say %.1f %% of the answers' tokens only", 100 * prepared.coverage)
    return found


def _plan(opened: Opened, prepared: Prepared, free: int) -> TrainPlan:
    split, rows = prepared.split, prepared.rows
    lengths = [rows[i].tokens for i in split.training]
    parameters = sum(math.prod(shape) for shape in expected_shapes(prepared.start.config).values())
    kept = prepared.config.training.keep_checkpoints + 2  # the best, and the one that is being written
    folders = engine_folders(prepared.engine_ids, Path(DRAFTER))
    return TrainPlan(
        model=opened.manifest.model,
        layer_ids=list(prepared.store.layer_ids),
        rows=len(lengths),
        tokens=sum(lengths),
        longest_row=max(lengths),
        cut_rows=opened.rows.cut,
        held_out_rows=len(split.held_out),
        yardstick=yardstick_for(rows[i] for i in split.held_out) if split.held_out else None,
        steps=len(prepared.schedule.positions),
        draft_vocabulary_size=len(prepared.start.vocabulary),
        vllm=folders[DraftEngine.VLLM].as_posix(),
        sglang=folders[DraftEngine.SGLANG].as_posix(),
        parameters=parameters,
        bytes_needed=parameters * (kept * _CHECKPOINT_BYTES + 2 * _DRAFTER_BYTES),
        bytes_free=free,
        input_sha256=opened.manifest_sha256,
    )


def _check_room(output: Path, found: TrainPlan) -> None:
    """What an earlier attempt has written already takes no room again."""
    there = sum(
        path.stat().st_size
        for folder in (CHECKPOINTS, DRAFTER)
        for path in (output / folder).rglob("*")
        if path.is_file()
    )
    needed = found.bytes_needed - there
    if needed > found.bytes_free:
        raise JobRefusedError(
            "InsufficientStorage",
            f"checkpoints and drafter of {found.parameters} weights need {byte_size(needed)} more, and "
            f"{output} has {byte_size(found.bytes_free)} free; enlarge the volume, or lower checkpoint.keep",
        )
