from __future__ import annotations

import pytest

from draftmill_api.crd import root_schema
from draftmill_api.v1alpha1.mutability import (
    DRAFTER_TRAIN,
    EXTRACT_RUN,
    SYNTH_RUN,
    Change,
    Field,
    change_of,
    rules,
)
from draftmill_api.v1alpha1.resources import RESOURCES, Resource
from draftmill_dev.reference import walk

EACH_RESOURCE = pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.kind)


@EACH_RESOURCE
def test_the_table_speaks_about_every_field_of_the_spec(resource: Resource) -> None:
    paths = {row.path.replace("[]", "") for row in walk(root_schema(resource)["properties"]["spec"])}
    parents = {path.rpartition(".")[0] for path in paths}
    for leaf in paths - parents:
        change_of(leaf, resource.fields)


@EACH_RESOURCE
def test_the_table_speaks_about_no_field_that_does_not_exist(resource: Resource) -> None:
    paths = {row.path.replace("[]", "") for row in walk(root_schema(resource)["properties"]["spec"])}
    assert {field.path for field in resource.fields} <= paths


@EACH_RESOURCE
def test_no_field_has_two_entries(resource: Resource) -> None:
    for field in resource.fields:
        above = [other for other in resource.fields if f"{field.path}.".startswith(f"{other.path}.")]
        assert above == [field]


def test_every_refusal_names_the_field_and_a_remedy() -> None:
    refused = [field for field in SYNTH_RUN if field.change is Change.REFUSED]
    *messages, switch = [rule.message for rule in rules(SYNTH_RUN)]
    assert messages == [
        f"spec.{field.path} cannot be changed while the run is active; {field.remedy}" for field in refused
    ]
    assert switch.startswith("a run cannot be moved from server to endpoints")
    assert all(field.remedy for field in refused)


def test_what_is_live_by_design_is_live() -> None:
    assert {field.path for field in SYNTH_RUN if field.change is Change.LIVE} == {
        "server.replicas",
        "server.concurrencyPerReplica",
        "server.keepAfterSuccess",
        "server.keepAfterFailure",
        "endpoints",
        "generation.concurrency",
        "generation.shortPromptTokens",
        "generation.concurrencyShort",
        "generation.requestsPerMinute",
        "generation.tokensPerMinute",
        "generation.connectTimeout",
        "generation.stallTimeout",
        "generation.outageTimeout",
        "generation.retries",
        "generation.errorPolicy",
        "generation.onPause",
        "suspend",
        "activeDeadline",
        "pendingDeadline",
        "backoffLimit",
        "ttlAfterFinished",
        "resumeToken",
    }


def test_what_workers_are_started_with_restarts_them() -> None:
    assert {field.path for field in SYNTH_RUN if field.change is Change.RESTART_JOB} == {
        "generation.workers",
        "generation.pod",
        "restart",
    }


def test_a_path_below_an_entry_belongs_to_it() -> None:
    assert change_of("datasets.sampling.topP", SYNTH_RUN) is Change.REFUSED
    with pytest.raises(KeyError):
        change_of("datasetsAndMore", SYNTH_RUN)


def test_what_is_live_in_an_extract_run() -> None:
    live = {field.path for field in EXTRACT_RUN if field.change is Change.LIVE}
    assert live - {"server.keepAfterSuccess", "server.keepAfterFailure"} == {
        "endpoints",
        "inFlightTokens",
        "retries",
        "outageTimeout",
        "suspend",
        "activeDeadline",
        "pendingDeadline",
        "backoffLimit",
        "ttlAfterFinished",
    }


def test_a_server_in_a_workers_pod_is_never_restarted_without_it() -> None:
    assert {field.path for field in EXTRACT_RUN if field.change is Change.RESTART_SERVER} == set()


@pytest.mark.parametrize(
    "path", ["from.synthRun.name", "model.path", "layers.ids", "dtype", "maxRowTokens", "output.path"]
)
def test_what_decides_about_the_states_is_refused_while_they_are_made(path: str) -> None:
    assert change_of(path, EXTRACT_RUN) is Change.REFUSED


def test_a_kind_without_servers_has_no_rule_about_them() -> None:
    assert all("server" not in rule.rule for rule in rules(DRAFTER_TRAIN))


def test_where_a_drafter_is_trained_may_change_while_it_is() -> None:
    restarting = {field.path for field in DRAFTER_TRAIN if field.change is Change.RESTART_JOB}
    assert restarting == {
        "training.pod",
        "nodes",
        "gpusPerNode",
        "gpuProducts",
        "sharedMemory",
        "extraResources",
        "resourceClaims",
        "checkpoint",
        "restart",
    }


@pytest.mark.parametrize("path", ["training.epochs", "training.seed", "heldOutPercent", "scratch", "init"])
def test_what_decides_about_the_weights_is_refused_while_they_are_trained(path: str) -> None:
    assert change_of(path, DRAFTER_TRAIN) is Change.REFUSED


@pytest.mark.parametrize("table", [EXTRACT_RUN, DRAFTER_TRAIN])
def test_every_refusal_of_a_later_run_has_a_remedy(table: tuple[Field, ...]) -> None:
    assert all(field.remedy for field in table if field.change is Change.REFUSED)
