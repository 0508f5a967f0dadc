"""A drafter of a target that repeats what it read: without the target's states it cannot know what comes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from draftmill_api.v1alpha1.trainstatus import Yardstick
from draftmill_jobs.train.data import RowSource
from draftmill_jobs.train.loop import StepReport
from draftmill_jobs.train.training import train
from draftmill_jobs.train.world import joined
from tests.support.toy_drafter import DRAFT_TOKENS, toy_config
from tests.support.toy_target import FOLDER, SHAPE, repetition_accuracy, toy_model, toy_rows

pytestmark = pytest.mark.timeout(900)


@dataclass(frozen=True)
class Learned:
    """What a training came to."""

    acceptance_length: float
    yardstick: Yardstick


def test_the_toy_target_repeats_what_it_read() -> None:
    assert repetition_accuracy(toy_model()) > 0.95
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 2_000_000


def test_a_drafter_that_has_the_targets_states_is_accepted_after_two_minutes_of_cpu(tmp_path: Path) -> None:
    rows, began = toy_rows(480), time.process_time()
    learned = learn(tmp_path, rows)
    seconds = time.process_time() - began

    assert learned.yardstick is Yardstick.ACCEPTANCE_LENGTH
    assert learned.acceptance_length > 2.5
    assert seconds < 120


def test_a_drafter_that_has_other_rows_states_is_not(tmp_path: Path) -> None:
    assert learn(tmp_path, toy_rows(480).permuted()).acceptance_length < 1.3


def learn(output: Path, rows: RowSource) -> Learned:
    """Trains on rows and says how the best drafter does on those held out."""
    reports: list[StepReport] = []
    with joined(0) as world:
        train(
            toy_config(output),
            rows,
            SHAPE,
            world,
            should_stop=lambda: False,
            begun=lambda _: None,
            report=reports.append,
        )
    found = [report.evaluation for report in reports if report.evaluation is not None]
    best = max(found, key=lambda evaluation: evaluation.figure)
    assert len(best.acceptance.by_position) == DRAFT_TOKENS
    return Learned(best.figure, best.yardstick)
