"""What may be changed in a SynthRun, asked of the API server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kubernetes import client

from draftmill_api.v1alpha1.mutability import SYNTH_RUN, Change, change_of
from draftmill_dev.cluster import ControlPlane
from tests.support import kube
from tests.support.changed_fields import merged
from tests.support.spec_changes import GIVEN, SYNTH_CHANGES, SYNTH_SPEC, Case
from tests.support.synthruns import Manifest, smallest_synth_run

pytestmark = pytest.mark.api

NAME = "changing"
STARTED = {"startTime": "2026-01-01T00:00:00Z"}
ENDED = STARTED | {"completionTime": "2026-01-01T01:00:00Z"}
SECRET = {"secretKeyRef": {"name": "s", "key": "k"}}


INSIDE_OPAQUE = (
    Case(
        "generation.chatTemplateKwargs",
        {"generation": {"chatTemplateKwargs": {"custom": {"deep": 2}}}},
        "deep inside an unknown argument",
    ),
    Case(
        "generation.chatTemplateKwargs",
        {"generation": {"chatTemplateKwargs": {"thinking": None, "enable_thinking": True}}},
        "one known argument for another",
    ),
    Case(
        "generation.chatTemplateKwargs",
        {"generation": {"chatTemplateKwargs": {"thinking": None, "think": True}}},
        "a known argument for an unknown one",
    ),
    Case(
        "generation.chatTemplateKwargs",
        {"generation": {"chatTemplateKwargs": {"custom": None}}},
        "an argument taken away",
    ),
)


class Runs:
    """One run that is changed."""

    def __init__(self, objects: Any, name: str) -> None:
        self.objects = objects
        self.name = name
        self.address = ("draftmill.dev", "v1alpha1", "default", "synthruns")

    def create(self, spec: Manifest, status: Manifest) -> None:
        run = smallest_synth_run(self.name)
        run["spec"] = merged(run["spec"], spec)
        self.objects.create_namespaced_custom_object(*self.address, run)
        if status:
            self.objects.patch_namespaced_custom_object_status(*self.address, self.name, {"status": status})

    def delete(self) -> None:
        self.objects.delete_namespaced_custom_object(*self.address, self.name)

    def change(self, spec: Manifest) -> Manifest:
        """The spec after a change that is only tried."""
        run = self.objects.get_namespaced_custom_object(*self.address, self.name)
        run["spec"] = merged(run["spec"], spec)
        changed = self.objects.replace_namespaced_custom_object(*self.address, self.name, run, dry_run="All")
        return dict(changed["spec"])


@pytest.fixture(scope="module")
def run_in(control_plane: ControlPlane, crds: None) -> Iterator[Callable[[Manifest], Runs]]:
    """Makes the run be there with a status; kept while the same status is asked for."""
    runs = Runs(kube.connect(control_plane.kubeconfig, "default").objects, NAME)
    there: list[Manifest] = []

    def with_status(status: Manifest) -> Runs:
        if there != [status]:
            if there:
                runs.delete()
            runs.create(SYNTH_SPEC, status)
            there[:] = [status]
        return runs

    yield with_status
    if there:
        runs.delete()


EACH_CHANGE = pytest.mark.parametrize("case", SYNTH_CHANGES, ids=lambda case: case.title or case.entry)
EACH_INSIDE = pytest.mark.parametrize("case", INSIDE_OPAQUE, ids=lambda case: case.title)


def test_every_entry_of_the_table_is_tried() -> None:
    tried = {case.entry for case in SYNTH_CHANGES} | {"endpoints"}
    assert tried == {field.path for field in SYNTH_RUN}


@EACH_CHANGE
def test_while_active_no_refused_field_changes(case: Case, run_in: Callable[[Manifest], Runs]) -> None:
    runs = run_in(STARTED)
    if change_of(case.entry, SYNTH_RUN) is not Change.REFUSED:
        runs.change(case.change)
        return
    assert f"spec.{case.entry} cannot be changed while the run is active" in refusal(runs, case.change)


@EACH_INSIDE
def test_while_active_no_change_hides_in_what_is_passed_through(
    case: Case, run_in: Callable[[Manifest], Runs]
) -> None:
    assert f"spec.{case.entry} cannot be changed" in refusal(run_in(STARTED), case.change)


@pytest.mark.parametrize("status", [{}, ENDED], ids=["before the start", "after the end"])
@EACH_CHANGE
def test_an_inactive_run_can_be_changed(
    case: Case, status: Manifest, run_in: Callable[[Manifest], Runs]
) -> None:
    run_in(status).change(case.change)


def test_an_active_run_is_not_moved_from_its_servers_to_given_ones(
    run_in: Callable[[Manifest], Runs],
) -> None:
    assert "cannot be moved from server to endpoints" in refusal(run_in(STARTED), GIVEN)
    run_in(ENDED).change(GIVEN)


def test_given_endpoints_change_while_active(control_plane: ControlPlane, crds: None) -> None:
    runs = Runs(kube.connect(control_plane.kubeconfig, "default").objects, "given-endpoints")
    runs.create(GIVEN, STARTED)
    moved = [GIVEN["endpoints"][0] | {"url": "http://10.0.0.6:8000"}]
    assert runs.change({"endpoints": moved})["endpoints"] == moved
    runs.delete()


def test_writing_the_same_again_is_no_change(run_in: Callable[[Manifest], Runs]) -> None:
    run_in(STARTED).change({})


def refusal(runs: Runs, change: Manifest) -> str:
    with pytest.raises(client.ApiException) as refused:
        runs.change(change)
    return str(json.loads(str(refused.value.body))["message"])
