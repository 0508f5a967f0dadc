"""The writers of a store, killed twenty times, again and again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.store_kills import fill_through_kills

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("workers", [1, 3])
def test_twenty_kills_lose_and_double_nothing(tmp_path: Path, workers: int, seed: int) -> None:
    fill_through_kills(tmp_path, rows=300, workers=workers, kills=20, seed=seed)
