"""Checkpoints that are whole or not there."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from draftmill_jobs.train.checkpoint import Checkpoints, TrainState


def save(checkpoints: Checkpoints, step: int, best_step: int | None = None) -> None:
    state = TrainState(step=step, identity="i", tokens=10 * step, best_step=best_step)
    checkpoints.save(state, {"w": torch.full((4,), float(step))}, {"w.exp_avg": torch.zeros(4)})


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "c", 2)
    save(checkpoints, 5)

    assert checkpoints.steps() == [5]
    assert (checkpoints.state(5).step, checkpoints.state(5).tokens) == (5, 50)
    assert checkpoints.weights(5)["w"].tolist() == [5.0] * 4
    assert checkpoints.moments(5)["w.exp_avg"].tolist() == [0.0] * 4


def test_the_newest_and_the_best_are_kept_and_pointed_to(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, 2)
    for step, best in ((1, None), (2, 2), (3, 2), (4, 2), (5, 2)):
        save(checkpoints, step, best)

    assert checkpoints.steps() == [2, 4, 5]
    assert (tmp_path / "latest").read_text() == "step-00000005"
    assert (tmp_path / "best").read_text() == "step-00000002"
    (tmp_path / "best").write_text("step-00000001")  # as a kill just before leaves it
    save(checkpoints, 6, 2)
    assert (tmp_path / "best").read_text() == "step-00000002"


@pytest.mark.parametrize("name", ["model.safetensors", "optimiser.safetensors", "state.json"])
def test_a_checkpoint_with_half_a_file_is_none(tmp_path: Path, name: str) -> None:
    checkpoints = Checkpoints(tmp_path, 2)
    save(checkpoints, 1)
    save(checkpoints, 2)
    path = tmp_path / "step-00000002" / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    assert checkpoints.steps() == [1]
    save(checkpoints, 2)
    assert checkpoints.steps() == [1, 2]


def test_what_a_killed_process_left_half_written_is_no_checkpoint_and_goes_with_the_next(
    tmp_path: Path,
) -> None:
    left = tmp_path / ".unfinished-1"
    left.mkdir()
    (left / "model.safetensors").write_bytes(b"half")
    checkpoints = Checkpoints(tmp_path, 2)

    assert checkpoints.steps() == []
    save(checkpoints, 1)
    assert not left.exists()
