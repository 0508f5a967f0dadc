"""What may be changed in a DrafterTrain, asked of the API server field by field; and how it is listed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from draftmill_api.v1alpha1.mutability import DRAFTER_TRAIN
from draftmill_dev.cluster import ControlPlane
from tests.api.test_crd_changes import ENDED, STARTED
from tests.api.test_crd_schema import kubectl
from tests.support import kube
from tests.support.changed_fields import ChangedRun, changed_run
from tests.support.draftertrains import smallest_drafter_train, train_progress
from tests.support.spec_changes import TRAIN_CHANGES

pytestmark = pytest.mark.api

ADDRESS: Final = ("draftmill.dev", "v1alpha1", "default", "draftertrains")
NAME: Final = "changing-dt"


@pytest.fixture(params=[{}, STARTED, ENDED], ids=["before the start", "active", "after the end"])
def run(request: pytest.FixtureRequest, control_plane: ControlPlane, crds: None) -> Iterator[ChangedRun]:
    manifest = smallest_drafter_train(NAME)
    with changed_run(
        control_plane, "draftertrains", manifest, status=request.param, changes=TRAIN_CHANGES, beside="init"
    ) as there:
        yield there


def test_every_entry_of_the_table_is_tried() -> None:
    assert TRAIN_CHANGES.keys() == {field.path for field in DRAFTER_TRAIN}


def test_only_while_active_a_refused_field_does_not_change(
    run: ChangedRun, request: pytest.FixtureRequest
) -> None:
    run.try_all(DRAFTER_TRAIN, active=request.node.callspec.params["run"] == STARTED)


def test_kubectl_get_shows_how_far_a_training_is(control_plane: ControlPlane, crds: None) -> None:
    objects = kube.connect(control_plane.kubeconfig, "default").objects
    objects.create_namespaced_custom_object(*ADDRESS, smallest_drafter_train("shown-dt"))
    progress = train_progress(120, 2450).to_json() | {"tokensPerSecond": 5200, "eta": "12m"}
    status = {"phase": "Running", "progress": progress}
    objects.patch_namespaced_custom_object_status(*ADDRESS, "shown-dt", {"status": status})
    header, line = kubectl(control_plane, "get", "dt", "shown-dt").splitlines()
    assert header.split() == [
        "NAME",
        "PHASE",
        "EPOCH",
        "STEP",
        "LOSS",
        "ACC-LEN",
        "TOK/S",
        "ETA",
        "AGE",
    ]
    assert line.split()[1:-1] == ["Running", "1", "120", "2.31", "1.9", "5200", "12m"]
    objects.delete_namespaced_custom_object(*ADDRESS, "shown-dt")
