from __future__ import annotations

from pathlib import Path

import pytest

from draftmill_dev.cluster import ControlPlane
from tests.support import kube
from tests.support.synthruns import dry_run, manifests

pytestmark = pytest.mark.api

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_accepted_as_it_is(path: Path, control_plane: ControlPlane, crds: None) -> None:
    runs = kube.connect(control_plane.kubeconfig, "default").objects
    for manifest in manifests(path):
        dry_run(runs, manifest)
