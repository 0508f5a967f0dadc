from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from draftmill_dev import binaries
from draftmill_dev.cluster import ControlPlane
from tests.support import kube
from tests.support.draftertrains import smallest_drafter_train
from tests.support.extractruns import smallest_extract_run
from tests.support.synthruns import Manifest, dry_run, manifests, smallest_synth_run

pytestmark = pytest.mark.api

BAD = sorted((Path(__file__).parents[1] / "data" / "bad").glob("*.yaml"))
EACH_BAD = pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
_ANSWER = "# Answer: "


@pytest.fixture(scope="module")
def runs(control_plane: ControlPlane, crds: None) -> Any:
    return kube.connect(control_plane.kubeconfig, "default").objects


@EACH_BAD
def test_a_wrong_object_is_refused_with_its_sentence(path: Path, runs: Any) -> None:
    (manifest,) = manifests(path)
    with pytest.raises(client.ApiException) as refused:
        dry_run(runs, manifest)
    assert answer_of(path) in json.loads(str(refused.value.body))["message"]


@EACH_BAD
def test_kubectl_prints_the_sentence(path: Path, control_plane: ControlPlane, crds: None) -> None:
    applied = kubectl(control_plane, "apply", "--dry-run=server", f"--filename={path}")

    assert applied.returncode == 1
    assert answer_of(path) in applied.stderr


@pytest.mark.parametrize("smallest", [smallest_synth_run, smallest_extract_run, smallest_drafter_train])
def test_the_smallest_object_is_accepted(smallest: Callable[[str], Manifest], runs: Any) -> None:
    assert dry_run(runs, smallest("good"))["metadata"]["name"] == "good"


@EACH_BAD
def test_a_bad_example_says_what_it_is_answered(path: Path) -> None:
    assert path.read_text().startswith(_ANSWER)


def kubectl(control_plane: ControlPlane, *arguments: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "KUBECONFIG": str(control_plane.kubeconfig), "HOME": str(control_plane.state)}
    command = [str(binaries.kube()), "kubectl", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, env=variables)


def answer_of(path: Path) -> str:
    return path.read_text().splitlines()[0].removeprefix(_ANSWER)
