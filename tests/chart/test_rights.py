"""Who may do what, asked of the API server under exactly the chart's rules."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from kubernetes import client

from draftmill_dev.cluster import ControlPlane
from tests.support import kube
from tests.support.helm import NAMESPACE, Helm, Manifest
from tests.support.waiting import until

pytestmark = pytest.mark.api

LEASE = "draftmill-operator"
TEAM = "team-a"
WATCHED = ("get", "list", "watch")
OWNED = (*WATCHED, "create", "patch", "delete")
EVERY_VERB = (*OWNED, "update", "deletecollection")


class Right(NamedTuple):
    """One verb on one resource."""

    group: str
    resource: str
    verb: str


def rights(group: str, resource: str, *verbs: str) -> set[Right]:
    return {Right(group, resource, verb) for verb in verbs}


NEEDED = (
    rights("draftmill.dev", "synthruns", *WATCHED, "delete")
    | rights("draftmill.dev", "synthruns/status", "patch")
    | rights("draftmill.dev", "synthruns/finalizers", "update")
    | rights("draftmill.dev", "extractruns", *WATCHED, "delete")
    | rights("draftmill.dev", "extractruns/status", "patch")
    | rights("draftmill.dev", "extractruns/finalizers", "update")
    | rights("draftmill.dev", "draftertrains", *WATCHED, "delete")
    | rights("draftmill.dev", "draftertrains/status", "patch")
    | rights("draftmill.dev", "draftertrains/finalizers", "update")
    | rights("batch", "jobs", *OWNED)
    | rights("apps", "deployments", *OWNED)
    | rights("", "services", *OWNED)
    | rights("", "configmaps", *WATCHED, "create", "patch")
    | rights("", "pods", *WATCHED, "patch", "delete")
    | rights("", "persistentvolumeclaims", "get")
    | rights("", "events", "list", "create")
)
NODES = rights("", "nodes", "get", "list")
"""Nodes belong to no namespace: only an operator of the whole cluster may see them."""
ASKED = NEEDED | {
    Right(group, resource, verb)
    for group, resource in {
        *((right.group, right.resource) for right in NEEDED),
        ("", "secrets"),
        ("", "nodes"),
        ("", "namespaces"),
        ("", "serviceaccounts"),
        ("", "serviceaccounts/token"),
        ("", "pods/log"),
        ("", "pods/exec"),
        ("", "pods/eviction"),
        ("", "persistentvolumeclaims"),
        ("", "persistentvolumes"),
        ("", "resourcequotas"),
        ("apps", "replicasets"),
        ("apps", "daemonsets"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        ("coordination.k8s.io", "leases"),
        ("rbac.authorization.k8s.io", "rolebindings"),
        ("rbac.authorization.k8s.io", "clusterrolebindings"),
    }
    for verb in EVERY_VERB
}


class Reviewer:
    """Asks what an identity may do."""

    def __init__(self, api: Any) -> None:
        self.authorization: Any = client.AuthorizationV1Api(api)

    def may(
        self, user: str, right: Right, namespace: str, name: str = "", groups: tuple[str, ...] = ()
    ) -> bool:
        resource, _, below = right.resource.partition("/")
        spec = client.V1SubjectAccessReviewSpec(
            user=user,
            groups=[*groups],
            resource_attributes=client.V1ResourceAttributes(
                group=right.group,
                resource=resource,
                subresource=below,
                verb=right.verb,
                namespace=namespace,
                name=name,
            ),
        )
        review = self.authorization.create_subject_access_review(client.V1SubjectAccessReview(spec=spec))
        return bool(review.status.allowed)

    def may_operator(self, right: Right, namespace: str, name: str = "") -> bool:
        user = f"system:serviceaccount:{NAMESPACE}:draftmill-operator"
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated")
        return self.may(user, right, namespace, name, groups)

    def operator_rights(self, namespace: str) -> set[Right]:
        return {right for right in ASKED if self.may_operator(right, namespace)}


@pytest.fixture(scope="module")
def reviewer(control_plane: ControlPlane) -> Reviewer:
    return Reviewer(kube.connect(control_plane.kubeconfig, "default").api)


@pytest.fixture(scope="module")
def for_all_namespaces(cluster_helm: Helm, control_plane: ControlPlane) -> None:
    install(cluster_helm, control_plane, {})


@pytest.mark.usefixtures("for_all_namespaces")
def test_the_operator_may_do_what_it_needs_and_nothing_else(reviewer: Reviewer) -> None:
    assert reviewer.operator_rights(TEAM) == NEEDED | NODES


@pytest.mark.usefixtures("for_all_namespaces")
@pytest.mark.parametrize(
    ("verb", "namespace", "name", "allowed"),
    [
        ("create", NAMESPACE, "", True),
        ("get", NAMESPACE, LEASE, True),
        ("update", NAMESPACE, LEASE, False),
        ("patch", NAMESPACE, LEASE, True),
        ("delete", NAMESPACE, LEASE, False),
        ("patch", NAMESPACE, "someone-elses", False),
        ("patch", TEAM, LEASE, False),
    ],
)
def test_the_operator_holds_its_own_lease_alone(
    verb: str, namespace: str, name: str, allowed: bool, reviewer: Reviewer
) -> None:
    right = Right("coordination.k8s.io", "leases", verb)
    assert reviewer.may_operator(right, namespace, name) is allowed


@pytest.mark.usefixtures("for_all_namespaces")
@pytest.mark.parametrize(
    ("role", "may", "may_not"),
    [
        ("view", WATCHED, ("create", "update", "patch", "delete", "deletecollection")),
        ("edit", EVERY_VERB, ()),
        ("admin", EVERY_VERB, ()),
    ],
)
def test_the_usual_roles_reach_runs(
    role: str, may: tuple[str, ...], may_not: tuple[str, ...], reviewer: Reviewer, control_plane: ControlPlane
) -> None:
    bind(control_plane, role)

    def ask(verb: str) -> bool:
        return reviewer.may(f"a-{role}", Right("draftmill.dev", "synthruns", verb), TEAM)

    until(lambda: all(map(ask, may)), 20, f"the role {role} gives {may}")
    assert not [verb for verb in may_not if ask(verb)]
    assert not reviewer.may(f"a-{role}", Right("draftmill.dev", "synthruns/status", "patch"), TEAM)


def test_with_namespaces_the_operator_has_rights_in_them_alone(
    cluster_helm: Helm, control_plane: ControlPlane, reviewer: Reviewer
) -> None:
    install(cluster_helm, control_plane, {"watchNamespaces": [TEAM]})
    assert reviewer.operator_rights(TEAM) == NEEDED
    assert reviewer.operator_rights("default") == set()


def install(helm: Helm, control_plane: ControlPlane, values: Manifest) -> None:
    core = kube.connect(control_plane.kubeconfig, "default").core
    there = {namespace.metadata.name for namespace in core.list_namespace().items}
    if TEAM not in there:
        core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=TEAM)))
    helm.upgrade(values)


def bind(control_plane: ControlPlane, role: str) -> None:
    roles: Any = client.RbacAuthorizationV1Api(kube.connect(control_plane.kubeconfig, "default").api)
    subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": f"a-{role}"}
    reference = {"kind": "ClusterRole", "apiGroup": "rbac.authorization.k8s.io", "name": role}
    binding = {"metadata": {"name": role}, "roleRef": reference, "subjects": [subject]}
    roles.create_namespaced_role_binding(TEAM, binding)
