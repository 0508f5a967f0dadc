"""The losses of SpecForge 0.2.0 and speculators 0.9.0 on the same weights and row, each under its own rule.

The numbers are what `python benchmarks/train.py --losses` prints. Both differ from our loss in known ways,
which the tests undo: which positions count, and what the sum is divided by.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.drafting import Bench, Row, parity_case

SPECFORGE = [1.5811506509780884, 1.5848098993301392, 1.5085768699645996]
SPECULATORS = [1.695655107498169, 1.7375210523605347, 1.5934346914291382]
STEPS = 3


def scored_at(row: Row, teachers: range) -> Row:
    """The same row with a mask that makes these the teacher positions."""
    mask = np.zeros(len(row.mask), np.bool_)
    mask[teachers.start : teachers.stop + 1] = True
    return Row(row.token_ids, row.states, row.last, mask)


def entropy(bench: Bench, row: Row, teachers: range) -> float:
    teacher = bench.unroller.teacher.log_probabilities(row.last[list(teachers)])
    return -float((teacher.exp() * teacher).sum())


def test_speculators_also_counts_the_token_behind_an_answer() -> None:
    bench, (row,) = parity_case()
    answer = np.flatnonzero(row.mask)
    teachers = range(int(answer[0]), int(answer[-1]) + 1)

    assert bench.mean_losses([scored_at(row, teachers)], STEPS) == pytest.approx(SPECULATORS, rel=1e-5)


def test_specforge_masks_one_position_late_takes_cross_entropy_and_divides_by_the_length() -> None:
    bench, (row,) = parity_case()
    answer = np.flatnonzero(row.mask)
    teachers = range(int(answer[0]) + 1, int(answer[-1]) + 2)
    divergences = bench.mean_losses([scored_at(row, teachers)], STEPS)
    cross = [(len(teachers) * d + entropy(bench, row, teachers)) / len(row.mask) for d in divergences]

    assert cross == pytest.approx(SPECFORGE, rel=1e-5)
