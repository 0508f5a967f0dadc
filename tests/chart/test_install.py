"""The chart in a real control plane: accepted as it is, installed, upgraded, uninstalled."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes import client, dynamic

from draftmill_dev.cluster import ControlPlane
from tests.chart.pod_monitor import POD_MONITORS
from tests.chart.test_rendering import EVERYTHING
from tests.support import kube
from tests.support.helm import CHART, NAMESPACE, RELEASE, Helm, HelmError, Manifest, one
from tests.support.synthruns import smallest_synth_run
from tests.support.waiting import until

pytestmark = pytest.mark.api

VALUES: dict[str, Manifest] = {"as it is": {}, "with everything": EVERYTHING}
ADDRESS = ("draftmill.dev", "v1alpha1", "default", "synthruns")


@pytest.fixture(scope="module")
def api(control_plane: ControlPlane) -> kube.Kube:
    kube.install_crd(control_plane.kubeconfig, POD_MONITORS)
    connected = kube.connect(control_plane.kubeconfig, "default")
    for namespace in (NAMESPACE, "team-a", "team-b"):
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        metadata = client.V1ObjectMeta(name=namespace, labels=labels)
        connected.core.create_namespace(client.V1Namespace(metadata=metadata))
    return connected


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_the_api_server_knows_every_field_of_every_object(
    values: Manifest, helm: Helm, api: kube.Kube
) -> None:
    resources = dynamic.DynamicClient(api.api).resources
    for manifest in helm.template(values):
        resource = resources.get(api_version=manifest["apiVersion"], kind=manifest["kind"])
        resource.server_side_apply(
            body=manifest,
            namespace=manifest["metadata"].get("namespace"),
            name=manifest["metadata"]["name"],
            field_manager="test",
            field_validation="Strict",
            dry_run="All",
        )


def test_the_operators_pod_passes_the_restricted_profile(helm: Helm, api: kube.Kube) -> None:
    manifests = helm.template()
    template = one(manifests, "Deployment")["spec"]["template"]
    template["metadata"]["name"] = "operator"
    del template["spec"]["serviceAccountName"]
    for pod in (template, one(manifests, "Pod")):
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": pod["metadata"], "spec": pod["spec"]}
        api.core.create_namespaced_pod(NAMESPACE, body, dry_run="All")


def test_from_installation_to_uninstallation(cluster_helm: Helm, api: kube.Kube) -> None:
    cluster_helm.upgrade()
    assert deployment(api).spec.template.spec.containers[0].image == "draftmill-operator:0.1.0"
    until(lambda: served(api), 30, "synthruns are served")
    api.objects.create_namespaced_custom_object(*ADDRESS, smallest_synth_run("kept"))

    cluster_helm.upgrade({"images": {"operator": {"tag": "0.1.1"}}})
    assert deployment(api).spec.template.spec.containers[0].image == "draftmill-operator:0.1.1"
    assert "deployed" in cluster_helm("status", RELEASE)
    assert "kubectl get synthruns -A" in cluster_helm("get", "notes", RELEASE)

    cluster_helm("uninstall", RELEASE, "--wait")
    assert api.list_runs() == ["kept"]
    assert api.apps.list_namespaced_deployment(NAMESPACE).items == []
    assert cluster_roles(api) == []

    cluster_helm.upgrade()
    assert api.list_runs() == ["kept"]
    cluster_helm("uninstall", RELEASE, "--wait")


def test_another_release_leaves_the_crds_to_the_first(cluster_helm: Helm, api: kube.Kube) -> None:
    cluster_helm.upgrade()
    with pytest.raises(HelmError, match=r"\.draftmill\.dev"):
        cluster_helm("install", "second", str(CHART))
    cluster_helm("install", "second", str(CHART), values={"crds": {"install": False}})
    for release in (RELEASE, "second"):
        cluster_helm("uninstall", release, "--wait")


def deployment(api: kube.Kube) -> Any:
    (found,) = api.apps.list_namespaced_deployment(NAMESPACE).items
    return found


def served(api: kube.Kube) -> bool:
    groups = client.ApisApi(api.api).get_api_versions().groups
    return any(group.name == "draftmill.dev" for group in groups)


def cluster_roles(api: kube.Kube) -> list[str]:
    roles: Any = client.RbacAuthorizationV1Api(api.api)
    found = roles.list_cluster_role(label_selector="app.kubernetes.io/part-of=draftmill").items
    return [role.metadata.name for role in found]
