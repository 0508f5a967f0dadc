"""The generator without Kubernetes, killed thirty times; `make test-chaos` kills it as a user starts it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.generator_kills import generate_through_kills
from tests.support.killing_worker import ForkedWorker

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


def test_thirty_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    generate_through_kills(tmp_path, ForkedWorker("generate"), kills=30, seed=1)
