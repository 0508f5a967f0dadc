"""A cluster for a demo, of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from draftmill_dev import cache, cluster, volumes


@contextmanager
def no_cluster_yet(name: str) -> Iterator[Path]:
    """Yields where the data volume of a cluster will be that is not there yet, and removes it in the end."""
    with cache.lock(f"cluster-{name}"):
        cluster.down(name, purge=True)
        try:
            yield cluster.STATES / name / "volumes" / volumes.DATA
        finally:
            cluster.down(name, purge=True)
