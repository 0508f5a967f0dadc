"""What may be changed in an ExtractRun, asked of the API server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
from kubernetes import client

from draftmill_api.v1alpha1.mutability import EXTRACT_RUN, Change, Field
from draftmill_dev.cluster import ControlPlane
from tests.api.test_crd_changes import ENDED, STARTED, merged
from tests.support import kube
from tests.support.extractruns import smallest_extract_run
from tests.support.synthruns import Manifest

pytestmark = pytest.mark.api

ADDRESS: Final = ("draftmill.dev", "v1alpha1", "default", "extractruns")
NAME: Final = "changing-er"
CLAIM: Final = {"persistentVolumeClaim": {"claimName": "other"}}
CHANGES: Final[Manifest] = {
    "from": {"synthRun": {"name": "other"}},
    "model": {"name": "other", "path": "other"},
    "storage": {"models": CLAIM, "data": CLAIM},
    "backend": {"backend": "Transformers", "server": None},
    "layers": {"ids": [1, 2], "default": None},
    "dtype": "Float8",
    "maxRowTokens": 100,
    "onLongRow": "Skip",
    "rowFilter": ["ok"],
    "maxRows": 10,
    "shardSize": "1Gi",
    "workers": 2,
    "inFlightTokens": 1000,
    "retries": 9,
    "verify": {"teacherArgmaxSample": 2},
    "extraction": {"pod": {"priorityClassName": "low"}},
    "output": {"path": "elsewhere"},
    "suspend": True,
    "activeDeadline": "1h",
    "pendingDeadline": "1h",
    "backoffLimit": 1,
    "ttlAfterFinished": "24h",
    "restart": "2",
    "resumeToken": "2",
    "server.image": "vllm/vllm-openai:v0.34.0",
    "server.gpus": 4,
    "server.kvCacheDtype": "fp8_e4m3",
    "server.extraArgs": ["--enforce-eager"],
    "server.pod": {"priorityClassName": "low"},
}
"""A change of each entry, but for those that the rules of the spec do not let stand alone."""
TRIED: Final = [field for field in EXTRACT_RUN if field.path in CHANGES]


class Runs:
    """One run that is changed."""

    def __init__(self, objects: Any) -> None:
        self.objects = objects

    def create(self, status: Manifest) -> None:
        self.objects.create_namespaced_custom_object(*ADDRESS, smallest_extract_run(NAME))
        if status:
            self.objects.patch_namespaced_custom_object_status(*ADDRESS, NAME, {"status": status})

    def change(self, field: Field) -> None:
        """Try a change of an entry."""
        run = self.objects.get_namespaced_custom_object(*ADDRESS, NAME)
        parent, _, name = field.path.rpartition(".")
        value = CHANGES[field.path]
        change = value if field.path == "backend" else {name: value}
        run["spec"] = merged(run["spec"], {parent: change} if parent else change)
        self.objects.replace_namespaced_custom_object(*ADDRESS, NAME, run, dry_run="All")


@pytest.fixture(params=[{}, STARTED, ENDED], ids=["before the start", "active", "after the end"])
def runs(request: pytest.FixtureRequest, control_plane: ControlPlane, crds: None) -> Iterator[Runs]:
    there = Runs(kube.connect(control_plane.kubeconfig, "default").objects)
    there.create(request.param)
    yield there
    there.objects.delete_namespaced_custom_object(*ADDRESS, NAME)


def test_only_while_active_a_refused_field_does_not_change(
    runs: Runs, request: pytest.FixtureRequest
) -> None:
    active = request.node.callspec.params["runs"] == STARTED
    for field in TRIED:
        if not (active and field.change is Change.REFUSED):
            runs.change(field)
            continue
        with pytest.raises(client.ApiException) as refused:
            runs.change(field)
        assert f"spec.{field.path} cannot be changed while the run is active" in str(refused.value.body)
