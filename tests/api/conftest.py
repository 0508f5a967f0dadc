"""Control planes for tests: the real etcd, API server and controller manager, without a node."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from draftmill_dev import binaries, cluster
from draftmill_dev.cluster import ControlPlane
from tests.api.operator_account import operator_account
from tests.api.operator_bed import Bed, namespace
from tests.support import kube
from tests.support.operator_process import operator_process


def pytest_collection_finish(session: pytest.Session) -> None:
    """Builds Kubernetes and Helm before any test's time starts to count."""
    if not session.config.option.collectonly and any(
        "control_plane" in _fixtures(item) for item in session.items
    ):
        binaries.everything()


@pytest.fixture(scope="session")
def control_plane(start_control_plane: Callable[..., ControlPlane]) -> ControlPlane:
    """A control plane that all tests share; it writes the audit log."""
    return start_control_plane(audit=True)


@pytest.fixture(scope="session")
def crds(control_plane: ControlPlane) -> None:
    """The shared control plane knows Draftmill's resources."""
    kube.install_crds(control_plane.kubeconfig)


@pytest.fixture(scope="session")
def start_control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., ControlPlane]]:
    """Starts further control planes; all end with the session."""
    with contextlib.ExitStack() as running:

        def start(*, audit: bool = False) -> ControlPlane:
            return running.enter_context(cluster.control_plane(tmp_path_factory.mktemp("kube"), audit=audit))

        yield start


@pytest.fixture(scope="module")
def bed(control_plane: ControlPlane, crds: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """A namespace with a running operator, for tests that stop neither and count nothing."""
    with _bed(control_plane, tmp_path_factory.mktemp("operator")) as shared:
        yield shared


@pytest.fixture
def own_bed(control_plane: ControlPlane, crds: None, tmp_path: Path) -> Iterator[Bed]:
    """A namespace with a running operator, for one test alone."""
    with _bed(control_plane, tmp_path) as own:
        yield own


@contextlib.contextmanager
def _bed(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Bed]:
    with (
        contextlib.contextmanager(namespace)(control_plane, f"op-{uuid.uuid4().hex[:8]}") as cluster,
        operator_process(
            operator_account(control_plane, cluster.namespace, tmp_path), cluster.namespace, tmp_path
        ) as operator,
    ):
        operator.start()
        yield Bed(cluster, operator, control_plane.audit_log)


def _fixtures(item: pytest.Item) -> str:
    return " ".join(getattr(item, "fixturenames", ()))
