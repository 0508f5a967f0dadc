from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from draftmill_operator.settings import ImagePullPolicy, OperatorSettings, load_settings
from tests.support.helm import NAMESPACE, Helm, Manifest, one

EVERYTHING: Manifest = {
    "images": {"pullPolicy": "Never", "pullSecrets": [{"name": "regcred"}], "registry": "mirror.example/x/"},
    "podDefaults": {
        "server": {
            "env": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
            "volumes": [{"name": "env", "persistentVolumeClaim": {"claimName": "env", "readOnly": True}}],
            "volumeMounts": [{"name": "env", "mountPath": "/opt/env", "readOnly": True}],
            "securityContext": {"runAsUser": 1000650000},
            "tolerations": [{"key": "dedicated", "operator": "Exists"}],
        },
        "job": {"nodeSelector": {"pool": "cpu"}, "resources": {"limits": {"memory": "8Gi"}}},
        "trainer": {"schedulerName": "gang"},
    },
    "hostPathPrefixes": ["/mnt/models"],
    "watchNamespaces": ["team-a", "team-b"],
    "logLevel": "Debug",
    "logFormat": "Text",
    "podMonitor": {"enabled": True},
    "networkPolicy": {"metricsFrom": [{"namespaceSelector": {}}]},
    "priorityClassName": "high",
    "extraEnv": [{"name": "NO_PROXY", "value": "10.0.0.0/8"}],
}


def test_the_operator_reads_the_settings_that_the_chart_writes(helm: Helm, tmp_path: Path) -> None:
    settings = settings_of(helm.template(EVERYTHING), tmp_path)
    assert settings.job_image == "mirror.example/x/draftmill-jobs:0.1.0"
    assert settings.trainer_image == "mirror.example/x/draftmill-jobs-train:0.1.0"
    assert settings.image_pull_policy is ImagePullPolicy.NEVER
    assert settings.pod_defaults.to_json() == EVERYTHING["podDefaults"]
    assert settings.host_path_prefixes == ["/mnt/models"]
    assert settings.watch_namespaces == ["team-a", "team-b"]


def test_without_values_the_chart_writes_every_setting(helm: Helm, tmp_path: Path) -> None:
    manifests = helm.template()
    written = yaml.safe_load(one(manifests, "ConfigMap")["data"]["settings.yaml"])
    names = {field.alias for field in OperatorSettings.model_fields.values()}
    assert set(written) == names
    assert settings_of(manifests, tmp_path).watch_namespaces == []


def test_a_changed_setting_starts_the_operator_anew(helm: Helm) -> None:
    annotations = [
        template_of(helm.template(values))["metadata"]["annotations"] for values in ({}, EVERYTHING)
    ]
    assert annotations[0] != annotations[1]


def test_a_digest_goes_before_a_tag(helm: Helm) -> None:
    digest = "sha256:" + "0" * 64
    manifests = helm.template({"images": {"operator": {"tag": "v9", "digest": digest}}})
    (container,) = template_of(manifests)["spec"]["containers"]
    assert container["image"] == f"draftmill-operator@{digest}"


def test_crds_outlive_the_release(helm: Helm) -> None:
    crds = [each for each in helm.template() if each["kind"] == "CustomResourceDefinition"]
    assert [crd["metadata"]["name"] for crd in crds] == [
        "draftertrains.draftmill.dev",
        "extractruns.draftmill.dev",
        "synthruns.draftmill.dev",
    ]
    assert all(crd["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"} for crd in crds)


def test_crds_can_be_left_to_someone_else(helm: Helm) -> None:
    kinds = {manifest["kind"] for manifest in helm.template({"crds": {"install": False}})}
    assert "CustomResourceDefinition" not in kinds


def test_there_is_one_operator_and_never_two(helm: Helm) -> None:
    spec = one(helm.template(), "Deployment")["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


def test_no_rule_says_everything(helm: Helm) -> None:
    rules = [
        rule
        for manifest in helm.template() + helm.template(EVERYTHING)
        if manifest["kind"] in ("Role", "ClusterRole")
        for rule in manifest["rules"]
    ]
    assert rules
    assert not [rule for rule in rules if "*" in {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}]


def test_with_namespaces_the_operator_has_no_right_beyond_them(helm: Helm) -> None:
    manifests = helm.template(EVERYTHING)
    assert not [manifest for manifest in manifests if manifest["kind"] == "ClusterRoleBinding"]
    bound = {m["metadata"]["namespace"] for m in manifests if m["kind"] == "RoleBinding"}
    assert bound == {"team-a", "team-b", NAMESPACE}


def test_with_namespaces_job_pods_are_closed_to_all_but_the_operator(helm: Helm) -> None:
    jobs = policies_of_teams(helm, "-jobs")
    assert {policy["metadata"]["namespace"] for policy in jobs} == {"team-a", "team-b"}
    for policy in jobs:
        (ingress,) = policy["spec"]["ingress"]
        assert ingress["ports"] == [{"protocol": "TCP", "port": 9090}]
        assert ingress["from"][1:] == EVERYTHING["networkPolicy"]["metricsFrom"]


def test_with_namespaces_ranks_of_a_training_reach_each_other_on_every_port(helm: Helm) -> None:
    ranks = {"matchLabels": {"draftmill.dev/kind": "draftertrain", "draftmill.dev/role": "worker"}}
    policies = policies_of_teams(helm, "-ranks")
    assert {policy["metadata"]["namespace"] for policy in policies} == {"team-a", "team-b"}
    for policy in policies:
        assert policy["spec"]["podSelector"] == ranks
        assert policy["spec"]["ingress"] == [{"from": [{"podSelector": ranks}]}]


def test_network_policies_can_be_left_out(helm: Helm) -> None:
    kinds = {manifest["kind"] for manifest in helm.template({"networkPolicy": {"enabled": False}})}
    assert "NetworkPolicy" not in kinds


def test_services_and_policies_select_the_operators_pod(helm: Helm) -> None:
    manifests = helm.template()
    labels = template_of(manifests)["metadata"]["labels"].items()
    assert one(manifests, "Service")["spec"]["selector"].items() <= labels
    assert one(manifests, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"].items() <= labels


def test_monitors_select_the_operators_pod_and_all_job_pods_by_the_ports_name(helm: Helm) -> None:
    manifests = helm.template(EVERYTHING | {"podMonitor": {"enabled": True, "labels": {"team": "a"}}})
    operator, jobs = (one(manifests, "PodMonitor", f"draftmill-{of}") for of in ("operator", "jobs"))
    template = template_of(manifests)
    (container,) = template["spec"]["containers"]
    assert operator["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert [port["name"] for port in container["ports"]] == ["http"]
    assert jobs["spec"]["namespaceSelector"] == {"matchNames": ["team-a", "team-b"]}
    (expression,) = jobs["spec"]["selector"]["matchExpressions"]
    assert expression == {
        "key": "draftmill.dev/role",
        "operator": "In",
        "values": ["plan", "worker", "evaluate-plain", "evaluate-draft", "finish"],
    }
    for monitor in (operator, jobs):
        assert monitor["metadata"]["labels"]["team"] == "a"
        assert monitor["spec"]["podMetricsEndpoints"] == [{"port": "http", "interval": "30s"}]


@pytest.mark.parametrize(
    ("release", "deployment"),
    [
        ("draftmill", "draftmill-operator"),
        ("my-draftmill", "my-draftmill-operator"),
        ("spec", "spec-draftmill-operator"),
        ("a" * 53, "a" * 50 + "-operator"),
    ],
)
def test_names_come_from_the_release(release: str, deployment: str, helm: Helm) -> None:
    manifests = helm.template(release=release)
    assert one(manifests, "Deployment")["metadata"]["name"] == deployment
    assert len(deployment) <= 63


def policies_of_teams(helm: Helm, suffix: str) -> list[Manifest]:
    policies = [manifest for manifest in helm.template(EVERYTHING) if manifest["kind"] == "NetworkPolicy"]
    names = [(policy["metadata"]["namespace"], policy["metadata"]["name"]) for policy in policies]
    return [
        policy
        for policy, (namespace, name) in zip(policies, names, strict=True)
        if namespace != NAMESPACE and name.endswith(suffix)
    ]


def template_of(manifests: list[Manifest]) -> Manifest:
    return dict(one(manifests, "Deployment")["spec"]["template"])


def settings_of(manifests: list[Manifest], folder: Path) -> OperatorSettings:
    path = folder / "settings.yaml"
    path.write_text(one(manifests, "ConfigMap")["data"]["settings.yaml"])
    return load_settings(path)
