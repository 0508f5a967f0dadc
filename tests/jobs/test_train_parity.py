"""The losses of SpecForge 0.2.0 and speculators 0.9.0 on the same weights and row, each under its own rule.

The numbers are what `python benchmarks/train.py --losses` prints. Both differ from our loss in known ways,
which the tests undo: which positions count, and what the sum is divided by.

What users of other trainers reported, and the tests that keep it from happening here:

- config without layer ids, engines take their defaults: `test_train_export` (ids are always written),
  `test_train_loop` (a config without ids is taken with the store's)
- layer ids of the other convention: `test_train_config` (each engine gets the ids that it reads as ours)
- a warm start with a new map: `test_train_loop` (a warm start keeps its map)
- draft vocabulary size ignored without counts: `test_train_vocabulary`
- a map of another size than the config says: `test_train_loop` (d2t has 48 ids)
- d2t left out of the export: `test_train_export` (the map is in the export; a map left out is found)
- width of a multimodal target read at the wrong place: `test_train_target`
- flags of the config that get lost: `test_train_export` (every flag comes back)
- loss mask one position off: `test_train_step` (exactly the positions between two answer tokens)
- left padding: `test_train_step` (padding on either side)
- packed documents that see each other, or are scored across: `test_train_step`
- rows longer than allowed: `test_train_store_rows` (cut alike)
- killed while a checkpoint is saved: `test_train_loop` (killed between any two files)
- other rows after a resume: `test_train_packing`, `test_train_loop` (goes on as if it had not been)
- loss in bfloat16: `test_train_losses`, `test_train_step` (float32 is that in float64)
- memory at a vocabulary of 163,840: `test_train_losses`
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
