"""A namespace with an operator of its own on the shared control plane."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes import client

from draftmill_api import names
from draftmill_dev.cluster import ControlPlane
from tests.support import kube
from tests.support.operator_process import OperatorProcess
from tests.support.played import Player
from tests.support.synthruns import smallest_synth_run
from tests.support.waiting import until


@dataclass(frozen=True)
class Bed:
    """What a test of the operator works with."""

    kube: kube.Kube
    operator: OperatorProcess
    audit_log: Path

    def create(self, name: str, **spec: Any) -> Player:
        """Create a SynthRun, the smallest one with these parts of the spec in place of its own."""
        manifest = smallest_synth_run(name)
        manifest["spec"] |= spec
        if "endpoints" in spec:
            del manifest["spec"]["server"]
        self.kube.create_run(manifest)
        return Player(self.kube, name)

    def deployments(self, name: str) -> list[Any]:
        """The Deployments of a run."""
        found: list[Any] = self.kube.apps.list_namespaced_deployment(
            self.kube.namespace, label_selector=f"{names.LABEL_RUN}={name}"
        ).items
        return found

    def condition(self, name: str, kind: str) -> dict[str, Any]:
        """One condition of a run; empty if it has none of that type."""
        conditions = self.kube.status(name).get("conditions", [])
        return next((item for item in conditions if item["type"] == kind), {})

    def wait_condition(
        self, name: str, kind: str, status: str, reason: str, within: float = 60
    ) -> dict[str, Any]:
        """Wait until a condition has this status and reason."""

        def look() -> dict[str, Any] | None:
            found = self.condition(name, kind)
            return found if (found.get("status"), found.get("reason")) == (status, reason) else None

        return until(
            look, within, lambda: f"{kind} {status} {reason}: {json.dumps(self.kube.status(name), indent=1)}"
        )

    def edit(self, name: str, **spec: Any) -> None:
        """Merge a change into a run's spec."""
        self.kube.patch_run(name, {"spec": spec})

    def events(self, name: str) -> list[tuple[str, str]]:
        """Type and reason of each event that is recorded of a run."""
        found = self.kube.core.list_namespaced_event(self.kube.namespace).items
        return [(event.type, event.reason) for event in found if event.involved_object.name == name]

    def make_pass(self, name: str) -> None:
        """Call for a pass over a run, by a change that means nothing, and wait until there was one."""
        before = self.passes()
        self.kube.patch_run(name, {"metadata": {"labels": {"touched": uuid.uuid4().hex}}})
        until(lambda: self.passes() > before, 30, f"a pass over {name}")

    def passes(self) -> float:
        """How many passes the operator has made since it started."""
        lines = self.operator.get("/metrics")[1].splitlines()
        prefix = "draftmill_operator_reconcile_seconds_count"
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(prefix))

    def writes(self) -> list[dict[str, Any]]:
        """Every write in this namespace that was made by the operator, oldest first, without its Lease."""
        lines = (json.loads(line) for line in self.audit_log.read_text().splitlines())
        return [
            line
            for line in lines
            if line.get("userAgent", "").startswith("draftmill-operator")
            and line["objectRef"].get("namespace") == self.kube.namespace
            and line["objectRef"]["resource"] != "leases"
            and line["verb"] not in {"get", "list", "watch"}
        ]


def namespace(control_plane: ControlPlane, name: str) -> Iterator[kube.Kube]:
    """A namespace, and the client of it; deleted at the end, without waiting."""
    cluster = kube.connect(control_plane.kubeconfig, name)
    cluster.core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=name)))
    until(lambda: _has_account(cluster), 20, "the namespace has its default service account")
    yield cluster
    cluster.core.delete_namespace(name)


def _has_account(cluster: kube.Kube) -> bool:
    accounts = cluster.core.list_namespaced_service_account(cluster.namespace).items
    return any(account.metadata.name == "default" for account in accounts)
