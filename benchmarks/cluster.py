"""Seconds until the local Kubernetes can be used: `make bench-cluster` (needs root).

The best of several tries, since a machine's other work only ever adds to them.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from draftmill_dev import binaries, cluster

NAME = "draftmill-bench"


def seconds(action: Callable[[], object]) -> float:
    """How long an action takes."""
    began = time.monotonic()
    action()
    return time.monotonic() - began


def control_plane() -> float:
    """From nothing to an API server that answers."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        with cluster.control_plane(Path(folder) / "plane"):
            return time.monotonic() - began


def whole_cluster() -> tuple[float, float]:
    """From nothing to a Ready node with DNS, and then once more with nothing to do."""
    try:
        return seconds(lambda: cluster.up(NAME)), seconds(lambda: cluster.up(NAME))
    finally:
        cluster.down(NAME, purge=True)


def main() -> int:
    """Prints the table; 1 when a row is missed."""
    binaries.everything()
    clusters = [whole_cluster() for _ in range(2)]
    rows = (
        ("control plane alone", min(control_plane() for _ in range(3)), 5.0),
        ("whole cluster, everything built", min(first for first, _ in clusters), 30.0),
        ("cluster-up of a running cluster", min(again for _, again in clusters), 2.0),
    )
    print(f"{'':34}{'seconds':>8}{'limit':>8}")
    for name, best, limit in rows:
        print(f"{name:34}{best:8.1f}{limit:8.1f}{'' if best < limit else '  missed'}")
    return int(any(best >= limit for _, best, limit in rows))


if __name__ == "__main__":
    sys.exit(main())
