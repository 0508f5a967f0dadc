"""The operator's account as the chart makes it: its tests run under exactly the chart's rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from kubernetes import client, utils

from draftmill_dev import binaries
from draftmill_dev.cluster import ControlPlane
from tests.support import kube
from tests.support.helm import Helm, one
from tests.support.waiting import until

_VALUES = {"crds": {"install": False}, "rbac": {"aggregate": False}}
_KINDS = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
_DAY = 86400
_FIRST_DEEDS = (
    {"group": "draftmill.dev", "resource": "synthruns", "verb": "list"},
    {"group": "coordination.k8s.io", "resource": "leases", "verb": "create"},
)
"""One for each of the two bindings."""


def operator_account(control_plane: ControlPlane, namespace: str, folder: Path) -> Path:
    """Makes the account in a namespace; returns its kubeconfig once the API server knows its rights."""
    admin = kube.connect(control_plane.kubeconfig, namespace)
    manifests = Helm(binaries.everything().helm, namespace=namespace).template(_VALUES)
    for manifest in manifests:
        if manifest["kind"] in _KINDS:
            utils.create_from_dict(admin.api, manifest)
    name = one(manifests, "ServiceAccount")["metadata"]["name"]
    request = {"spec": {"expirationSeconds": _DAY}}
    token = admin.core.create_namespaced_service_account_token(name, namespace, request).status.token

    kubeconfig = folder / "operator.kubeconfig"
    content = yaml.safe_load(control_plane.kubeconfig.read_text())
    for user in content["users"]:
        user["user"] = {"token": token}
    kubeconfig.write_text(yaml.safe_dump(content))
    reviews: Any = client.AuthorizationV1Api(kube.connect(kubeconfig, namespace).api)

    def may(deed: dict[str, str]) -> bool:
        spec = {"resourceAttributes": {**deed, "namespace": namespace}}
        return bool(reviews.create_self_subject_access_review({"spec": spec}).status.allowed)

    until(lambda: all(map(may, _FIRST_DEEDS)), 20, f"the rights of {name} in {namespace}")
    return kubeconfig
