"""The cluster's controllers, a step at a time: of Jobs, of Deployments and ReplicaSets, of garbage."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any

from draftmill_api import names as api_names
from draftmill_api.exitcode import ExitCode
from draftmill_operator.observe.store import RUN_KINDS, Kind, Object, controller
from draftmill_operator.render.server import template_hash
from tests.unit.operator.world.api import ApiServer

ENDED = {"Succeeded", "Failed"}


class Controllers:
    """What reacts to the objects that the operator makes."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._suffixes = itertools.count(1)
        self._counted: dict[str, set[str]] = defaultdict(set)
        """Uids of the ended pods that each Job has taken note of."""
        self.refusal: str = ""
        """Why no further server pods may be made, if so."""
        self._made: dict[str, set[str]] = defaultdict(set)
        """Uids of the ranks that were made for each Indexed Job."""

    def step(self) -> None:
        """Every object once."""
        for kind, sync in ((Kind.JOB, self.sync_job), (Kind.DEPLOYMENT, self.sync_deployment)):
            for raw in self._server.all(kind):
                sync(raw)
        self.collect_garbage()

    def sync_job(self, job: Object) -> None:
        """Count ended pods, judge the Job, and make its next pod where it has none."""
        metadata, server = job["metadata"], self._server
        pods = server.owned(Kind.POD, metadata["uid"])
        if "deletionTimestamp" in metadata or _conditions(job):
            return
        if job["spec"].get("completionMode") == "Indexed":
            self._sync_ranks(job, pods)
            return
        counted = self._counted[metadata["uid"]]
        failed: int = (job.get("status") or {}).get("failed", 0)
        for pod in pods:
            if has_ended(pod) and pod["metadata"]["uid"] not in counted:
                counted.add(pod["metadata"]["uid"])
                code = exit_code(pod)
                if code == ExitCode.DONE:
                    self._conclude(job, failed, "SuccessCriteriaMet", "CompletionsReached")
                    return
                if code == ExitCode.CONFIGURATION:
                    self._conclude(job, failed, "Failed", "PodFailurePolicy")
                    return
                failed += not (code == ExitCode.INTERRUPTED or _is_disrupted(pod))
        if failed > job["spec"]["backoffLimit"]:
            self._conclude(job, failed, "Failed", "BackoffLimitExceeded")
            return
        server.change(Kind.JOB, metadata["name"], status={"failed": failed})
        if all(has_ended(pod) for pod in pods):
            self._make_pod("Job", metadata["name"], metadata["uid"], job["spec"]["template"])

    def _sync_ranks(self, job: Object, pods: list[Object]) -> None:
        """Make every rank once; one that fails or vanishes ends the Job, and the others go."""
        metadata, ranks = job["metadata"], job["spec"]["completions"]
        made = self._made[metadata["uid"]]
        codes = [exit_code(pod) for pod in pods if has_ended(pod)]
        if any(code != ExitCode.DONE for code in codes) or made - {pod["metadata"]["uid"] for pod in pods}:
            is_refused = ExitCode.CONFIGURATION in codes
            reason = "PodFailurePolicy" if is_refused else "BackoffLimitExceeded"
            self._conclude(job, len(codes), "Failed", reason)
            for pod in pods:
                if not has_ended(pod):
                    self._server.mark_deleted(Kind.POD, pod["metadata"]["name"], grace=60)
        elif len(codes) == ranks:
            self._conclude(job, 0, "SuccessCriteriaMet", "CompletionsReached", succeeded=ranks)
        for rank in range(len(made), ranks):
            index = {api_names.ANNOTATION_RANK: str(rank)}
            pod = self._make_pod("Job", metadata["name"], metadata["uid"], job["spec"]["template"], index)
            made.add(pod["metadata"]["uid"])

    def sync_deployment(self, deployment: Object) -> None:
        """Recreate: pods of another template go first, then as many as are asked for are made."""
        metadata, spec, server = deployment["metadata"], deployment["spec"], self._server
        if "deletionTimestamp" in metadata:
            return
        replica_set = f"{metadata['name']}-{template_hash(spec['template'])[:10]}"
        pods = [pod for pod in self._pods_of_deployment(metadata["uid"]) if not has_ended(pod)]
        old = [pod for pod in pods if (controller(pod) or {})["name"] != replica_set]
        for pod in old:
            server.mark_deleted(Kind.POD, pod["metadata"]["name"], grace=60)
        if old:
            return
        staying = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        for pod in staying[spec["replicas"] :]:
            server.mark_deleted(Kind.POD, pod["metadata"]["name"], grace=60)
        missing = spec["replicas"] - len(staying)
        refused = self.refusal if missing > 0 else ""
        failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": refused}
        server.change(Kind.DEPLOYMENT, metadata["name"], status={"conditions": [failure] if refused else []})
        for _ in range(0 if refused else missing):
            uid = f"{metadata['uid']}/{replica_set}"
            self._make_pod("ReplicaSet", replica_set, uid, spec["template"])

    def collect_garbage(self) -> None:
        """Children of what is gone or going are deleted; what goes is removed after the last of them."""
        server = self._server
        runs = {raw["metadata"]["uid"] for kind in RUN_KINDS for raw in server.all(kind)}
        for kind in (Kind.JOB, Kind.DEPLOYMENT, Kind.SERVICE, Kind.CONFIG_MAP):
            for raw in server.all(kind):
                metadata = raw["metadata"]
                if (controller(raw) or {}).get("uid") not in runs:
                    server.mark_deleted(kind, metadata["name"])
        owners = {
            raw["metadata"]["uid"]: "deletionTimestamp" in raw["metadata"]
            for kind in (Kind.JOB, Kind.DEPLOYMENT)
            for raw in server.all(kind)
        }
        for pod in server.all(Kind.POD):
            owner: str = (controller(pod) or {})["uid"]
            if owners.get(owner.partition("/")[0], True):
                server.mark_deleted(Kind.POD, pod["metadata"]["name"], grace=60)
        for kind in (Kind.JOB, Kind.DEPLOYMENT, Kind.SERVICE, Kind.CONFIG_MAP):
            for raw in server.all(kind):
                metadata = raw["metadata"]
                if "deletionTimestamp" in metadata and not self._pods_of(kind, metadata["uid"]):
                    server.remove(kind, metadata["name"])

    def _pods_of(self, kind: Kind, uid: str) -> list[Object]:
        if kind is Kind.DEPLOYMENT:
            return self._pods_of_deployment(uid)
        return self._server.owned(Kind.POD, uid)

    def _pods_of_deployment(self, uid: str) -> list[Object]:
        pods = self._server.all(Kind.POD)
        return [pod for pod in pods if (controller(pod) or {})["uid"].startswith(f"{uid}/")]

    def _conclude(
        self, job: Object, failed: int, condition: str, reason: str, succeeded: int | None = None
    ) -> None:
        said = {"type": condition, "status": "True", "reason": reason, "message": f"the Job says {reason}"}
        well = int(condition == "SuccessCriteriaMet") if succeeded is None else succeeded
        status = {"failed": failed, "succeeded": well, "conditions": [said]}
        self._server.change(Kind.JOB, job["metadata"]["name"], status=status)

    def _make_pod(
        self, kind: str, name: str, uid: str, template: Object, annotations: Object | None = None
    ) -> Object:
        owner = {"kind": kind, "name": name, "uid": uid, "controller": True}
        metadata = template["metadata"] | {
            "name": f"{name}-{next(self._suffixes)}",
            "annotations": template["metadata"]["annotations"] | (annotations or {}),
            "ownerReferences": [owner],
        }
        return self._server.create(
            Kind.POD, {"metadata": metadata, "spec": template["spec"], "status": {"phase": "Pending"}}
        )


def has_ended(pod: Object) -> bool:
    """Whether nothing runs in the pod any more."""
    return pod["status"]["phase"] in ENDED


def role(raw: Object) -> str:
    """What a child is for."""
    value: str = raw["metadata"]["labels"][api_names.LABEL_ROLE]
    return value


def exit_code(pod: Object) -> int | None:
    """The exit code of an ended pod's container, if it ever ran."""
    statuses: list[dict[str, Any]] = pod["status"].get("containerStatuses") or []
    code: int | None = statuses[0]["state"]["terminated"]["exitCode"] if statuses else None
    return code


def _is_disrupted(pod: Object) -> bool:
    return any(item["type"] == "DisruptionTarget" for item in pod["status"].get("conditions") or [])


def _conditions(job: Object) -> list[Object]:
    found: list[Object] = (job.get("status") or {}).get("conditions") or []
    return found
