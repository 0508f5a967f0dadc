from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from draftmill_dev.cluster import ControlPlane
from tests.support import kube
from tests.support.synthruns import smallest_synth_run

pytestmark = pytest.mark.api

BAD = sorted((Path(__file__).parents[1] / "data" / "bad").glob("*.yaml"))
_ANSWER = "# Answer: "


@pytest.fixture(scope="module")
def runs(control_plane: ControlPlane, crds: None) -> Any:
    return kube.connect(control_plane.kubeconfig, "default").objects


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_a_wrong_object_is_refused_with_its_sentence(path: Path, runs: Any) -> None:
    text = path.read_text()
    with pytest.raises(client.ApiException) as refused:
        dry_run(runs, yaml.safe_load(text))
    assert answer_of(text) in json.loads(str(refused.value.body))["message"]


def test_the_smallest_object_is_accepted(runs: Any) -> None:
    assert dry_run(runs, smallest_synth_run("good"))["metadata"]["name"] == "good"


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_a_bad_example_says_what_it_is_answered(path: Path) -> None:
    assert path.read_text().startswith(_ANSWER)


def dry_run(runs: Any, manifest: dict[str, Any]) -> Any:
    """What `kubectl apply --dry-run=server` sends."""
    return runs.create_namespaced_custom_object(
        "draftmill.dev",
        "v1alpha1",
        "default",
        "synthruns",
        manifest,
        dry_run="All",
        field_validation="Strict",
    )


def answer_of(text: str) -> str:
    return text.splitlines()[0].removeprefix(_ANSWER)
