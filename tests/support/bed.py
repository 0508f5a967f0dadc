"""Where the tests of whole runs play: a real node with Draftmill on it, volumes, prompts, an audit log."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from kubernetes import client

from draftmill_api import names
from draftmill_api.jobconfig import config_hash
from tests.support.kube import Kube, Manifest, is_ready
from tests.support.waiting import until

MODEL_NAME = "smollm2-135m"
JOB_USER = 65532
BEYOND_CONTEXT = "one more word and " * 800
"""Before a prompt, makes it longer than the context of the tests' model servers."""
_OPERATOR = "app.kubernetes.io/component=operator"
_WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


class Write(NamedTuple):
    """A write that the API server logged."""

    verb: str
    resource: str
    name: str


@dataclass(frozen=True)
class Bed:
    """A namespace for runs, with the claims `models` and `data`.

    Attributes:
        kube: The namespace of the runs.
        system: The namespace of the operator.
        data: Folder of this machine that the claim `data` is bound to.
        server_image: Image of the CPU model server.
        audit_log: The API server's audit log.
        upgrade: Upgrades the release: the values that it was installed with, and these over them.
    """

    kube: Kube
    system: Kube
    data: Path
    server_image: str
    audit_log: Path
    upgrade: Callable[[Manifest], None]

    def create_run(self, name: str, *, datasets: list[Manifest], **spec: Any) -> str:
        """Creates a SynthRun of the small model, whose output is `runs/<name>` of the data volume."""
        whole = {
            "model": {"name": MODEL_NAME, "path": MODEL_NAME},
            "storage": self.storage(),
            "output": {"path": f"runs/{name}"},
            "datasets": datasets,
            "sampling": {"temperature": "0", "maxCompletionTokens": 32},
        }
        kind = {"apiVersion": names.API_VERSION, "kind": "SynthRun"}
        return self.kube.create_run({**kind, "metadata": {"name": name}, "spec": whole | spec})

    def storage(self) -> Manifest:
        """The volumes of a run."""
        claims = {name: {"persistentVolumeClaim": {"claimName": name}} for name in ("models", "data")}
        return dict(claims)

    def server(self, gpus: int = 0) -> Manifest:
        """A model server that answers with the same tokens from run to run."""
        return {
            "engine": "VLLM",
            "image": self.server_image,
            "gpus": gpus,
            "tensorParallelSize": 1,
            "contextLength": 2048,
            "startupTimeout": "10m",
            "sharedMemory": "1Gi",
            "extraArgs": ["--enforce-eager", "--dtype", "float32", "--max-num-seqs", "32"],
        }

    def endpoint(self, url: str) -> Manifest:
        """A server that someone else runs."""
        return {"name": "shared", "url": url, "engine": "VLLM"}

    def prompts(self, file: str, count: int, *, too_long: Container[int] = ()) -> str:
        """Writes distinct prompts and returns their file's path below the data volume.

        Args:
            file: Name of the file.
            count: Number of prompts.
            too_long: Those of them that a model server refuses, each time, for their length.
        """
        path = self.data / "prompts" / file
        path.parent.mkdir(exist_ok=True)
        questions = (
            f"{BEYOND_CONTEXT if number in too_long else ''}What is {number} plus {count}? Explain each step."
            for number in range(count)
        )
        rows = ({"messages": [{"role": "user", "content": question}]} for question in questions)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path.relative_to(self.data))

    def dataset(self, name: str, path: str, **rest: Any) -> Manifest:
        """A dataset of a file."""
        return {"name": name, "source": {"file": {"path": path}}, **rest}

    def output(self, run: str) -> Path:
        """Output folder of a run."""
        return self.data / "runs" / run

    def records_written(self, run: str) -> int:
        """Whole lines of records on disk."""
        return sum(file.read_bytes().count(b"\n") for file in self.output(run).glob("*/raw_responses*.jsonl"))

    def config_hash_with(self, run: str, concurrency: int) -> str:
        """Hash of a run's job config in the cluster; empty while it does not have this concurrency."""
        selector = f"{names.LABEL_RUN}={run},{names.LABEL_ROLE}=config"
        (found,) = self.kube.core.list_namespaced_config_map(
            self.kube.namespace, label_selector=selector
        ).items
        text = found.data["job.yaml"]
        return config_hash(text) if json.loads(text)["generation"]["concurrency"] == concurrency else ""

    def make_unwritable(self, folder: str) -> None:
        """Makes a folder of the data volume that jobs cannot write."""
        path = self.data / folder
        path.mkdir(exist_ok=True)
        os.chown(path, 0, 0)
        path.chmod(0o555)

    def wait_for_server_pod(self, run: str) -> Any:
        """The first server pod of a run, running or not."""
        return until(
            lambda: next(iter(self.kube.pods(run, "server")), None),
            90,
            lambda: f"a server pod of {run}: {self.kube.status(run)}",
        )

    def has_ended_once(self, pod: Any) -> bool:
        """Whether the container of a pod has come to an end."""
        now = self.kube.core.read_namespaced_pod(pod.metadata.name, self.kube.namespace)
        statuses = now.status.container_statuses or []
        return any(each.state.terminated or each.last_state.terminated for each in statuses)

    def finish_job_succeeded(self, run: str) -> bool:
        """Whether the finish step of a run has ended well."""
        labels = f"{names.LABEL_RUN}={run},{names.LABEL_ROLE}=finish"
        jobs = self.kube.batch.list_namespaced_job(self.kube.namespace, label_selector=labels).items
        return any(job.status.succeeded for job in jobs)

    def delete_all_runs(self) -> None:
        """Deletes every run, and waits until nothing of them is left."""
        runs = self.kube.list_runs()
        for run in runs:
            self.kube.delete_run(run)
        until(lambda: not any(map(self.kube.children, runs)), 120, f"nothing is left of {runs}")

    def operator_pod(self) -> Any:
        """The operator's pod."""
        (pod,) = self._operator_pods()
        return pod

    @contextlib.contextmanager
    def operator_away(self) -> Iterator[None]:
        """No operator runs while the block does; after it there is one that is ready."""
        self._scale_operator(0)
        until(lambda: not self._operator_pods(), 60, "the operator is gone")
        try:
            yield
        finally:
            self._scale_operator(1)
            until(lambda: any(is_ready(pod) for pod in self._operator_pods()), 60, "the operator is ready")

    def operator_writes(self, since: float) -> list[Write]:
        """What the operator wrote, by the API server's audit log.

        Args:
            since: Seconds since the epoch.
        """
        user = f"system:serviceaccount:{self.system.namespace}:"
        found = []
        for line in self.audit_log.read_text().splitlines():
            event = json.loads(line)
            if not event["user"]["username"].startswith(user) or event["verb"] not in _WRITES:
                continue
            if datetime.fromisoformat(event["requestReceivedTimestamp"]).timestamp() >= since:
                what = event["objectRef"]
                found.append(Write(event["verb"], what["resource"], what.get("name", "")))
        return found

    @contextlib.contextmanager
    def quota(self, hard: dict[str, str]) -> Iterator[None]:
        """The namespace has a quota while the block runs."""
        quota = client.V1ResourceQuota(
            metadata=client.V1ObjectMeta(name="tight"), spec=client.V1ResourceQuotaSpec(hard=hard)
        )
        core, namespace = self.kube.core, self.kube.namespace
        core.create_namespaced_resource_quota(namespace, quota)
        until(
            lambda: core.read_namespaced_resource_quota("tight", namespace).status.hard, 20, "the quota holds"
        )
        try:
            yield
        finally:
            core.delete_namespaced_resource_quota("tight", namespace)

    def _operator_pods(self) -> list[Any]:
        listed = self.system.core.list_namespaced_pod(self.system.namespace, label_selector=_OPERATOR)
        return list(listed.items)

    def _scale_operator(self, replicas: int) -> None:
        apps, namespace = self.system.apps, self.system.namespace
        (deployment,) = apps.list_namespaced_deployment(namespace, label_selector=_OPERATOR).items
        apps.patch_namespaced_deployment_scale(
            deployment.metadata.name, namespace, {"spec": {"replicas": replicas}}
        )
