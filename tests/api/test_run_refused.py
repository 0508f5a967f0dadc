"""Children that the API server refuses, and what is not this run's or this operator's: said, not touched."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client

from draftmill_api import names
from tests.api.operator_bed import Bed
from tests.support.played import plan_message
from tests.support.waiting import quiet_for, until

pytestmark = pytest.mark.api

NO = "the security team has not looked at this yet"


def test_workers_that_an_admission_policy_refuses_are_made_when_it_allows_them(own_bed: Bed) -> None:
    run = own_bed.create("policed")
    run.pod("plan")
    with admission_policy(own_bed, "jobs", f"object.metadata.labels['{names.LABEL_ROLE}'] != 'worker'"):
        run.end("plan", message=plan_message(100))
        run.make_ready("server")
        condition = own_bed.wait_condition("policed", "Progressing", "False", "ChildCreateFailed", within=30)
        assert "Job policed-sr-worker-0-1" in condition["message"]
        assert NO in condition["message"]
        status = own_bed.kube.status("policed")
        assert (status["phase"], status["message"]) == ("Starting", condition["message"])
        for _ in range(3):
            own_bed.make_pass("policed")
    assert run.pod("worker").metadata.labels[names.LABEL_ATTEMPT] == "1", "no attempt was made before"
    own_bed.wait_condition("policed", "Progressing", "True", "Starting")
    status = own_bed.kube.wait("policed", lambda s: s["attempts"][0]["count"] == 1, within=30)
    assert status["message"] == ""
    events = own_bed.events("policed")
    assert events.count(("Warning", "ChildCreateFailed")) == 1
    assert events.count(("Normal", "AttemptStarted")) == 1


def test_servers_that_an_admission_policy_refuses_are_made_when_it_allows_them(own_bed: Bed) -> None:
    run = own_bed.create("serverless")
    run.pod("plan")
    with admission_policy(own_bed, "deployments", "object.spec.replicas > 1"):
        run.end("plan", message=plan_message(100))
        condition = own_bed.wait_condition(
            "serverless", "Progressing", "False", "ChildCreateFailed", within=30
        )
        assert NO in condition["message"]
        assert own_bed.kube.status("serverless")["phase"] == "Starting"
    run.make_ready("server")
    run.pod("worker")
    own_bed.wait_condition("serverless", "Progressing", "True", "Starting")
    assert own_bed.events("serverless").count(("Warning", "ChildCreateFailed")) == 1


def test_a_run_of_another_operators_making_is_left_alone_and_says_so(own_bed: Bed) -> None:
    run = own_bed.create("newer")
    run.to_running()
    own_bed.operator.stop()
    defaults = own_bed.kube.core.read_namespaced_config_map("newer-sr-defaults", own_bed.kube.namespace)
    own_bed.kube.core.delete_namespaced_config_map("newer-sr-defaults", own_bed.kube.namespace)
    frozen = json.loads(defaults.data["defaults.json"]) | {"renderVersion": 2}
    defaults.metadata.resource_version = defaults.metadata.uid = None
    defaults.data = {"defaults.json": json.dumps(frozen)}
    own_bed.kube.core.create_namespaced_config_map(own_bed.kube.namespace, defaults)
    before = children(own_bed, "newer")
    own_bed.operator.start()
    condition = own_bed.wait_condition("newer", "Progressing", "False", "ChildNotUnderstood", within=30)
    assert "ConfigMap newer-sr-defaults" in condition["message"]
    assert "renderVersion" in condition["message"]
    assert own_bed.kube.status("newer")["reason"] == "ChildNotUnderstood"
    own_bed.edit("newer", server={"replicas": 2})
    for _ in range(3):
        own_bed.make_pass("newer")
    assert children(own_bed, "newer") == before
    assert own_bed.events("newer").count(("Warning", "ChildNotUnderstood")) == 1
    writes = len(own_bed.writes())
    own_bed.make_pass("newer")
    assert own_bed.writes()[writes:] == [], "it is said once"
    own_bed.kube.core.delete_namespaced_config_map("newer-sr-defaults", own_bed.kube.namespace)
    own_bed.wait_condition("newer", "Progressing", "True", "Starting", within=30)
    assert own_bed.kube.status("newer")["message"] == ""


def test_a_job_of_a_childs_name_is_left_alone_whoever_claims_to_own_it(bed: Bed) -> None:
    """A Job of that name whose owner has the run's name and another uid is not the run's."""
    metadata = {
        "name": "stale-sr-plan",
        "ownerReferences": [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "name": "stale",
                "uid": owner(bed).metadata.uid,
                "controller": True,
            }
        ],
    }
    pod = {"restartPolicy": "Never", "containers": [{"name": "mine", "image": "mine"}]}
    bed.kube.batch.create_namespaced_job(
        bed.kube.namespace, {"metadata": metadata, "spec": {"template": {"spec": pod}}}
    )
    run = bed.create("stale")
    condition = bed.wait_condition("stale", "Progressing", "False", "NameConflict", within=30)
    assert "Job stale-sr-plan" in condition["message"]
    quiet_for(1)
    assert bed.events("stale").count(("Warning", "NameConflict")) == 1
    found = bed.kube.batch.read_namespaced_job("stale-sr-plan", bed.kube.namespace)
    assert found.metadata.deletion_timestamp is None
    bed.kube.batch.delete_namespaced_job("stale-sr-plan", bed.kube.namespace, propagation_policy="Background")
    run.pod("plan")
    bed.wait_condition("stale", "Progressing", "True", "Planning")


@contextlib.contextmanager
def admission_policy(bed: Bed, resource: str, expression: str) -> Iterator[None]:
    """What the API server asks of objects that are created in this namespace, while the block runs."""
    registration = client.AdmissionregistrationV1Api(bed.kube.api)
    name = bed.kube.namespace
    group = {"jobs": "batch", "deployments": "apps"}[resource]
    rule = {
        "apiGroups": [group],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": [resource],
    }
    only_here: Any = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}
    policy: Any = {
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": only_here | {"resourceRules": [rule]},
            "validations": [{"expression": expression, "message": NO}],
        },
    }
    binding: Any = {"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}}
    registration.create_validating_admission_policy(policy)
    registration.create_validating_admission_policy_binding(binding)
    try:
        until(lambda: refuses(bed, resource), 30, "the policy is in force")
        yield
    finally:
        registration.delete_validating_admission_policy_binding(name)
        registration.delete_validating_admission_policy(name)


def refuses(bed: Bed, resource: str) -> bool:
    """Whether an object that the policy is about is refused by now."""
    labels = {names.LABEL_ROLE: "worker"}
    template: dict[str, Any] = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    try:
        if resource == "jobs":
            template["spec"] |= {"restartPolicy": "Never"}
            body: Any = {"metadata": {"name": "probe", "labels": labels}, "spec": {"template": template}}
            bed.kube.batch.create_namespaced_job(bed.kube.namespace, body, dry_run="All")
        else:
            body = {
                "metadata": {"name": "probe"},
                "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
            }
            bed.kube.apps.create_namespaced_deployment(bed.kube.namespace, body, dry_run="All")
    except client.ApiException as error:
        return NO in str(error.body)
    return False


def owner(bed: Bed) -> Any:
    body = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="stale"))
    return bed.kube.core.create_namespaced_config_map(bed.kube.namespace, body)


def children(bed: Bed, name: str) -> dict[str, str]:
    """The version of each child that a write would move, and a controller's status would not."""
    selector = {"label_selector": f"{names.LABEL_RUN}={name}"}
    kube = bed.kube
    lists = (
        kube.batch.list_namespaced_job,
        kube.apps.list_namespaced_deployment,
        kube.core.list_namespaced_config_map,
        kube.core.list_namespaced_service,
    )
    found = [item for listed in lists for item in listed(kube.namespace, **selector).items]
    return {
        item.metadata.uid: str(item.metadata.generation or item.metadata.resource_version) for item in found
    }
