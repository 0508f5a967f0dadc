"""`draftmill generate` without Kubernetes, killed again and again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.generator_kills import generate_through_kills, settle_each_row_once, talk_through_kills
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


@pytest.mark.parametrize(("workers", "servers", "terminated"), [(1, 1, 0.0), (2, 4, 0.0), (2, 4, 0.3)])
def test_a_hundred_kills_lose_and_double_nothing(
    tmp_path: Path, workers: int, servers: int, terminated: float
) -> None:
    settle_each_row_once(tmp_path, workers=workers, servers=servers, terminated=terminated)
