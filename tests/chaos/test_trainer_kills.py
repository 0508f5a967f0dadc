"""Trainers, killed twenty times, alone and with another rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.trainer_kills import train_through_kills

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("ranks", [1, 2])
def test_twenty_kills_change_no_weight(tmp_path: Path, ranks: int) -> None:
    train_through_kills(tmp_path, kills=20, ranks=ranks, seed=ranks)
