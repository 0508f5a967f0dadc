"""A writer that is really killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.store_kills import fill_through_kills


@pytest.mark.parametrize("workers", [1, 2])
def test_a_few_kills_lose_and_double_nothing(tmp_path: Path, workers: int) -> None:
    fill_through_kills(tmp_path, rows=60, workers=workers, kills=3, seed=workers)
