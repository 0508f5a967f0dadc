"""`draftmill extract` and its server without Kubernetes, killed twenty times, again and again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.extract_kills import Programs, extract_through_kills

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]


@pytest.mark.parametrize("seed", range(2, 7))
def test_twenty_kills_of_extractor_and_server_lose_and_double_nothing(tmp_path: Path, seed: int) -> None:
    extract_through_kills(tmp_path, Programs(), kills=20, seed=seed)
