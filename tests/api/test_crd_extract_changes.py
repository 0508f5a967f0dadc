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
from tests.support.spec_changes import EXTRACT_CHANGES

pytestmark = pytest.mark.api

NAME: Final = "changing-er"
TRIED: Final = [field for field in EXTRACT_RUN if field.path in EXTRACT_CHANGES]


@pytest.fixture(params=[{}, STARTED, ENDED], ids=["before the start", "active", "after the end"])
def run(request: pytest.FixtureRequest, control_plane: ControlPlane, crds: None) -> Iterator[ChangedRun]:
    manifest = smallest_extract_run(NAME)
    with changed_run(
        control_plane,
        "extractruns",
        manifest,
        status=request.param,
        changes=EXTRACT_CHANGES,
        beside="backend",
    ) as there:
        yield there


def test_only_while_active_a_refused_field_does_not_change(
    run: ChangedRun, request: pytest.FixtureRequest
) -> None:
    run.try_all(TRIED, active=request.node.callspec.params["run"] == STARTED)
