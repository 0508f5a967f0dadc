from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from draftmill_dev.cluster import ControlPlane
from tests.support import kube

pytestmark = pytest.mark.api

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_accepted_as_it_is(path: Path, control_plane: ControlPlane, crds: None) -> None:
    runs: Any = kube.connect(control_plane.kubeconfig, "default").objects
    for manifest in yaml.safe_load_all(path.read_text()):
        runs.create_namespaced_custom_object(
            "draftmill.dev",
            "v1alpha1",
            "default",
            "synthruns",
            manifest,
            dry_run="All",
            field_validation="Strict",
        )
