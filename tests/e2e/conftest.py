"""The node that end-to-end tests run on: a cluster of their own, beside whatever a person runs here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from draftmill_dev import binaries, cache, cluster
from draftmill_dev.cluster import Cluster

NAME = "draftmill-test"


def pytest_collection_finish(session: pytest.Session) -> None:
    """Builds the cluster's programs before any test's time starts to count."""
    wanted = any("cluster" in getattr(item, "fixturenames", ()) for item in session.items)
    if wanted and not session.config.option.collectonly:
        binaries.everything()


@pytest.fixture(scope="session", name="cluster")
def shared_cluster() -> Iterator[Cluster]:
    """A new cluster with one real node, for the whole session; a second session waits for the first."""
    with cache.lock(f"cluster-{NAME}"):
        cluster.down(NAME, purge=True)
        try:
            yield cluster.up(NAME)
        finally:
            cluster.down(NAME, purge=True)
