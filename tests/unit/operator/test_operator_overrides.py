from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill_api.v1alpha1.pod import PodOverrides
from draftmill_operator.render.overrides import apply_overrides, merge, merge_by

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
names = st.text("abc", min_size=1, max_size=2)
named_lists = st.dictionaries(names, st.integers()).map(
    lambda items: [{"name": name, "value": value} for name, value in items.items()]
)


def merged(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    return merge(PodOverrides.model_validate(under), PodOverrides.model_validate(over)).to_json()


@pytest.mark.parametrize(
    ("field", "under", "over", "expected"),
    [
        ("nodeSelector", {"a": "1", "b": "1"}, {"b": "2"}, {"a": "1", "b": "2"}),
        ("annotations", {"a": "1"}, {"b": "2"}, {"a": "1", "b": "2"}),
        ("env", [{"name": "A", "value": "1"}], [{"name": "A", "value": "2"}], [{"name": "A", "value": "2"}]),
        (
            "env",
            [{"name": "A", "value": "1"}],
            [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
            [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
        ),
        (
            "volumes",
            [{"name": "v", "emptyDir": {}}],
            [{"name": "w", "emptyDir": {}}],
            [{"name": "v", "emptyDir": {}}, {"name": "w", "emptyDir": {}}],
        ),
        (
            "volumeMounts",
            [{"name": "v", "mountPath": "/x"}],
            [{"name": "w", "mountPath": "/x"}],
            [{"name": "w", "mountPath": "/x"}],
        ),
        ("tolerations", [{"key": "a"}], [{"key": "b"}], [{"key": "a"}, {"key": "b"}]),
        ("tolerations", [{"key": "a"}], [{"key": "a"}], [{"key": "a"}]),
        ("affinity", {"nodeAffinity": {}}, {"podAffinity": {}}, {"podAffinity": {}}),
        ("priorityClassName", "low", "high", "high"),
        (
            "securityContext",
            {"runAsUser": 0, "privileged": False},
            {"runAsUser": 5},
            {"runAsUser": 5, "privileged": False},
        ),
        (
            "resources",
            {"limits": {"cpu": "1", "memory": "1Gi"}},
            {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}},
            {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}},
        ),
    ],
)
def test_the_run_wins_over_the_defaults(field: str, under: Any, over: Any, expected: Any) -> None:
    assert merged({field: under}, {field: over})[field] == expected


@given(named_lists, named_lists)
def test_a_merged_list_has_every_name_once_and_the_later_value(under: Any, over: Any) -> None:
    result = merge_by("name", under, over)
    values = {item["name"]: item["value"] for item in result}
    assert len(values) == len(result)
    assert values == {item["name"]: item["value"] for item in under} | {i["name"]: i["value"] for i in over}


@given(named_lists)
def test_merging_with_nothing_changes_nothing(items: Any) -> None:
    assert merge_by("name", items, []) == items
    assert merge_by("name", [], items) == items


def test_a_run_without_overrides_gets_the_defaults() -> None:
    defaults = PodOverrides(priority_class_name="low")
    assert merge(defaults, None) == defaults


def template() -> dict[str, Any]:
    return {
        "metadata": {"labels": {"draftmill.dev/role": "server"}, "annotations": {}},
        "spec": {
            "affinity": {
                "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu"}]}]}}
            },
            "containers": [{"name": "server", "resources": {"limits": {"nvidia.com/gpu": "8"}}}],
        },
    }


def test_a_given_node_affinity_and_the_choice_of_gpus_both_have_to_hold() -> None:
    terms = [{"matchExpressions": [{"key": "zone"}]}, {"matchFields": [{"key": "metadata.name"}]}]
    overrides = PodOverrides(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}})
    result = apply_overrides(template(), overrides)["spec"]["affinity"]["nodeAffinity"][REQUIRED]
    assert result["nodeSelectorTerms"] == [
        {"matchExpressions": [{"key": "zone"}, {"key": "gpu"}]},
        {"matchFields": [{"key": "metadata.name"}], "matchExpressions": [{"key": "gpu"}]},
    ]


def test_a_pod_affinity_leaves_the_choice_of_gpus() -> None:
    result = apply_overrides(template(), PodOverrides(affinity={"podAffinity": {}}))["spec"]["affinity"]
    assert result["podAffinity"] == {}
    assert result["nodeAffinity"] == template()["spec"]["affinity"]["nodeAffinity"]


@pytest.mark.parametrize(
    "given",
    [{"nodeAffinity": {}}, {"podAffinity": {}}, {"podAffinity": {REQUIRED: [{"topologyKey": "zone"}]}}],
)
def test_a_given_affinity_leaves_pods_beside_each_other_that_have_to_be(given: dict[str, Any]) -> None:
    beside = {"topologyKey": "kubernetes.io/hostname"}
    bound = template()
    bound["spec"]["affinity"] = {"podAffinity": {REQUIRED: [beside]}}
    result = apply_overrides(bound, PodOverrides(affinity=given))["spec"]["affinity"]
    others = given.get("podAffinity", {}).get(REQUIRED, [])
    assert result["podAffinity"][REQUIRED] == [*others, beside]


def test_labels_of_draftmill_are_not_overridden() -> None:
    overrides = PodOverrides(labels={"draftmill.dev/role": "worker", "team": "a"})
    labels = apply_overrides(template(), overrides)["metadata"]["labels"]
    assert labels == {"draftmill.dev/role": "server", "team": "a"}


def test_given_resources_keep_the_computed_gpus() -> None:
    overrides = PodOverrides(resources={"limits": {"memory": "1Ti"}})
    (container,) = apply_overrides(template(), overrides)["spec"]["containers"]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": "8", "memory": "1Ti"}}


def test_the_template_that_is_overridden_stays_as_it_was() -> None:
    before = template()
    apply_overrides(before, PodOverrides(labels={"team": "a"}, env=[{"name": "A", "value": "1"}]))
    assert before == template()
