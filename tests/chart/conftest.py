"""The chart under test: the real Helm, and a control plane to install it into."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from draftmill_dev import binaries, cluster
from draftmill_dev.cluster import ControlPlane
from tests.support.helm import Helm


def pytest_collection_finish(session: pytest.Session) -> None:
    """Builds Helm before any test's time starts to count."""
    needed = any("helm" in getattr(item, "fixturenames", ()) for item in session.items)
    if needed and not session.config.option.collectonly:
        binaries.everything()


@pytest.fixture(scope="session")
def helm() -> Helm:
    """Helm without a cluster."""
    return Helm(binaries.everything().helm)


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane without Draftmill."""
    with cluster.control_plane(tmp_path_factory.mktemp("kube")) as running:
        yield running


@pytest.fixture(scope="module")
def cluster_helm(helm: Helm, control_plane: ControlPlane) -> Helm:
    """Helm with a cluster."""
    return Helm(helm.program, control_plane.kubeconfig)
