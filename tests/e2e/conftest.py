"""The node that end-to-end tests run on: a cluster of their own, beside whatever a person runs here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from draftmill_dev import binaries, cache, cluster, oci
from draftmill_dev.cluster import Cluster

NAME = "draftmill-test"
KUBE_IMAGE = "draftmill.dev/kube:test"
TURN = pytest.StashKey[contextlib.ExitStack]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Builds the programs, and waits for other sessions' tests, before any test's time starts to count."""
    if session.config.option.collectonly or TURN in session.config.stash:
        return
    if any(item.get_closest_marker("e2e") for item in session.items):
        binaries.everything()
    if any("cluster" in getattr(item, "fixturenames", ()) for item in session.items):
        turn = session.config.stash[TURN] = contextlib.ExitStack()
        turn.enter_context(cache.lock(f"cluster-{NAME}"))
        session.config.add_cleanup(turn.close)


@pytest.fixture(scope="session", name="cluster")
def shared_cluster() -> Iterator[Cluster]:
    """A new cluster with one real node, for the whole session."""
    cluster.down(NAME, purge=True)
    try:
        yield cluster.up(NAME)
    finally:
        cluster.down(NAME, purge=True)


@pytest.fixture(scope="session")
def kube_image(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An image on the node that holds Kubernetes' own program: kubectl for pods, and a small web server."""
    archive = tmp_path_factory.mktemp("image") / "kube.tar"
    oci.write_binary_image(archive, KUBE_IMAGE, cluster.programs.kube)
    cluster.import_image(archive)
    return KUBE_IMAGE
