"""Extractor and server without Kubernetes, killed twenty times; `make test-chaos` kills them as programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.extract_kills import Forks, extract_through_kills

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


def test_twenty_kills_of_extractor_and_server_lose_and_double_nothing(tmp_path: Path) -> None:
    extract_through_kills(tmp_path, Forks(), kills=20, seed=1)
