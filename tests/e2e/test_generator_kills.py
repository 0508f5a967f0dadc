"""`draftmill generate` without Kubernetes, killed thirty times."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.generator_kills import generate_through_kills

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


def test_thirty_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    generate_through_kills(tmp_path, kills=30, seed=1)
