"""What may be changed in an ExtractRun, asked of the API server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from draftmill_api.v1alpha1.mutability import EXTRACT_RUN
from draftmill_dev.cluster import ControlPlane
from tests.api.test_crd_changes import ENDED, STARTED
from tests.support.changed_fields import ChangedRun, changed_run
from tests.support.extractruns import smallest_extract_run
from tests.support.synthruns import Manifest

pytestmark = pytest.mark.api

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


@pytest.fixture(params=[{}, STARTED, ENDED], ids=["before the start", "active", "after the end"])
def run(request: pytest.FixtureRequest, control_plane: ControlPlane, crds: None) -> Iterator[ChangedRun]:
    manifest = smallest_extract_run(NAME)
    with changed_run(
        control_plane, "extractruns", manifest, status=request.param, changes=CHANGES, beside="backend"
    ) as there:
        yield there


def test_only_while_active_a_refused_field_does_not_change(
    run: ChangedRun, request: pytest.FixtureRequest
) -> None:
    run.try_all(TRIED, active=request.node.callspec.params["run"] == STARTED)
