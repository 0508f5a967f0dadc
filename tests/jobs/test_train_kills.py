"""A trainer that is really killed."""

from __future__ import annotations

from pathlib import Path

from tests.support.trainer_kills import train_through_kills


def test_a_few_kills_change_no_weight(tmp_path: Path) -> None:
    train_through_kills(tmp_path, kills=2, ranks=1, seed=1)
