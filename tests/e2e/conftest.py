"""The node that end-to-end tests run on: a cluster of their own, beside whatever a person runs here.

On it is Draftmill, for those who ask for a bed, as `make demo` would install it. What needs no such node lies
in `apart/`, and may run at the same time.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from draftmill_dev import binaries, cache, cluster, environment, images, model, oci, release, volumes
from draftmill_dev.cluster import Cluster
from draftmill_dev.kubectl import Kubectl
from tests.support import kube
from tests.support.bed import Bed

NAME = "draftmill-test"
NAMESPACE = "draftmill-runs"
"""Where the tests' runs are."""
KUBE_IMAGE = "draftmill.dev/kube:test"
TURN = pytest.StashKey[contextlib.ExitStack]()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Two processes share the tests: one has those on the node, the other those of `apart/`."""
    return ByNode(config, log)


class ByNode(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types for it
    """Gives all tests on the shared node to one process; of the others each file to one."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "node" if file.startswith("tests/e2e/") and "/apart/" not in file else file


def pytest_sessionstart(session: pytest.Session) -> None:
    """What `pytest_collection_finish` does, if processes of this one's collect the tests: for all of them."""
    if getattr(session.config.option, "numprocesses", None) and not session.config.option.collectonly:
        build()
        wait_for_turn(session.config)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Builds the programs, and waits for other sessions' tests, before any test's time starts to count."""
    config = session.config
    if config.option.collectonly or TURN in config.stash or hasattr(config, "workerinput"):
        return
    if any(uses(item, "bed") for item in session.items):
        build()
    elif any(item.get_closest_marker("e2e") for item in session.items):
        binaries.everything()
    if any(uses(item, "cluster") for item in session.items):
        wait_for_turn(config)


def uses(item: pytest.Item, fixture: str) -> bool:
    """Whether a test asks for a fixture, itself or through others."""
    return fixture in getattr(item, "fixturenames", ())


def build() -> None:
    """Everything that a test takes from the cache."""
    binaries.everything()
    environment.build()
    model.build()
    for name in images.NAMES:
        images.build(name)


def wait_for_turn(config: pytest.Config) -> None:
    """No other session has the cluster until this one ends."""
    turn = config.stash[TURN] = contextlib.ExitStack()
    turn.enter_context(cache.lock(f"cluster-{NAME}"))
    config.add_cleanup(turn.close)


@pytest.fixture(scope="session", name="cluster")
def shared_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """A new cluster with one real node, for the whole session; its logs are kept if a test has failed."""
    cluster.down(NAME, purge=True)
    try:
        started = cluster.up(NAME)
        yield started
        if request.session.testsfailed:
            kept = tmp_path_factory.mktemp("cluster")
            shutil.copytree(started.state / "logs", kept / "logs", symlinks=True)
            shutil.copy(started.audit_log, kept)
            print(f"logs of the node: {kept}")
    finally:
        cluster.down(NAME, purge=True)


@pytest.fixture(scope="session")
def kube_image(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An image on the node that holds Kubernetes' own program: kubectl for pods, and a small web server."""
    archive = tmp_path_factory.mktemp("image") / "kube.tar"
    oci.write_binary_image(archive, KUBE_IMAGE, cluster.programs.kube)
    cluster.import_image(archive)
    return KUBE_IMAGE


@pytest.fixture(scope="session")
def bed(cluster: Cluster) -> Bed:
    """Draftmill, installed by its chart, and a namespace with volumes."""
    built = {name: images.build(name) for name in images.NAMES}
    for image in built.values():
        images.load(cluster, image)
    kubectl = Kubectl(cluster.programs.kubectl, cluster.programs.helm, cluster.kubeconfig, NAMESPACE)
    kubectl.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}])
    folders = volumes.lay_out(cluster.volumes, model.build(), environment.build())
    volumes.create_claims(kubectl, folders)
    values = {
        "images": release.local_images(built[images.OPERATOR], built[images.JOBS]),
        "podDefaults": release.mounted_environment(),
        "hostPathPrefixes": ["/srv/allowed"],
    }
    release.install(kubectl, values)
    return Bed(
        kube=kube.connect(cluster.kubeconfig, NAMESPACE, cluster.cgroup),
        system=kube.connect(cluster.kubeconfig, release.NAMESPACE, cluster.cgroup),
        data=cluster.volumes / volumes.DATA,
        server_image=built[images.SERVER].reference,
        audit_log=cluster.audit_log,
        upgrade=lambda more: release.install(kubectl, merged(values, more)),
    )


def merged(values: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Helm values with others over them."""
    both = {
        name: merged(values[name], more[name])
        for name in values.keys() & more.keys()
        if isinstance(more[name], dict)
    }
    return values | more | both
