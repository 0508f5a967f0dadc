"""The same node and the same bed as the end-to-end tests have, and only one session on it at a time."""

from __future__ import annotations

import pytest

from tests.e2e import conftest as node
from tests.e2e.conftest import shared_cluster
from tests.e2e.synthrun import conftest as synthrun
from tests.e2e.synthrun.conftest import bed

__all__ = ["bed", "shared_cluster"]


def pytest_collection_finish(session: pytest.Session) -> None:
    """What both of them do before any test's time starts to count."""
    node.pytest_collection_finish(session)
    synthrun.pytest_collection_finish(session)
