"""`draftmill generate` without Kubernetes, killed thirty times, again and again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.generator_kills import generate_through_kills, talk_through_kills
from tests.support.killing_worker import ProgramWorker

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]


@pytest.mark.parametrize("seed", range(2, 7))
def test_thirty_kills_lose_and_double_nothing(tmp_path: Path, seed: int) -> None:
    generate_through_kills(tmp_path, ProgramWorker("generate"), kills=30, seed=seed)


@pytest.mark.parametrize("seed", range(2, 4))
def test_thirty_kills_in_the_middle_of_conversations_lose_and_double_nothing(
    tmp_path: Path, seed: int
) -> None:
    talk_through_kills(tmp_path, ProgramWorker("generate"), kills=30, seed=seed, conversations=1500)
