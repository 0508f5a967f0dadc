"""The kubelet's part, played by a test: pods that the controllers made become ready, answer, end."""

from __future__ import annotations

import itertools
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from draftmill_api import names
from draftmill_api.progress import (
    FinishResult,
    PlanResult,
    Progress,
    Refusal,
    TerminationMessage,
    WorkerResult,
    WorkerState,
    packed,
)
from draftmill_api.v1alpha1.status import DatasetProgress, ModelFacts, RunProgress
from tests.support.kube import Kube
from tests.support.played_node import PlayedNode
from tests.support.waiting import until

FACTS = ModelFacts(
    fingerprint="f" * 64,
    architecture="LlamaForCausalLM",
    layers=30,
    hidden_size=576,
    vocabulary_size=49152,
    context_length=8192,
    think_family="none",
)
_NETWORK = 1 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
"""Of each of pytest's worker processes its own."""
_addresses = (
    f"127.{_NETWORK}.{third}.{fourth}" for third, fourth in itertools.product(range(256), range(1, 255))
)


def plan_message(*totals: int) -> TerminationMessage:
    """The last words of a plan that found these many rows in each dataset."""
    return TerminationMessage(
        plan=PlanResult(
            model=FACTS,
            dataset_totals=list(totals),
            dataset_duplicates=[0] * len(totals),
            dataset_unusable=[0] * len(totals),
            dataset_filtered=[0] * len(totals),
            prompt_tokens=1000,
            longest_prompt_tokens=100,
            bytes_needed=1 << 20,
            bytes_free=1 << 40,
        )
    )


def refusal_message(reason: str, message: str) -> TerminationMessage:
    """The last words of a job that refuses."""
    return TerminationMessage(refusal=Refusal(reason=reason, message=message))


def worker_message(done: int, total: int) -> TerminationMessage:
    """The last words of a worker."""
    return TerminationMessage(worker=WorkerResult(progress=counts(done, total)))


def finish_message(*done: int, cap_reached: bool = False) -> TerminationMessage:
    """The last words of a finish that counted these many records in each dataset."""
    return TerminationMessage(
        finish=FinishResult(
            progress=counts(sum(done), sum(done)),
            dataset_counts=[packed(counts(each, each)) for each in done],
            cap_reached=cap_reached,
            manifest="/data/prepared/manifest.json",
            manifest_sha256="a" * 64,
        )
    )


def counts(done: int, total: int) -> RunProgress:
    """Progress with so many whole answers."""
    return RunProgress(done=done, ok=done, total=total, completion_tokens=done * 100)


def answer(
    done: int,
    total: int,
    *,
    state: WorkerState = WorkerState.RUNNING,
    config_hash: str = "c",
    worker: str = "0/1",
    **rest: Any,
) -> Progress:
    """What a worker says at `/progress`."""
    return Progress(
        **rest,
        state=state,
        config_hash=config_hash,
        worker=worker,
        progress=counts(done, total).model_copy(
            update={"in_flight": 8, "requests_per_second": "1.1", "tokens_per_second": 1200, "eta": "1m"}
        ),
        datasets=[DatasetProgress(name="B1_glaive", done=done, ok=done, total=total)],
    )


class Player:
    """Plays the pods of one run."""

    def __init__(self, kube: Kube, run: str) -> None:
        self.kube = kube
        self.run = run

    def pod(self, role: str, within: float = 60) -> Any:
        """The newest pod of a role that has not ended, waited for."""

        def look() -> Any:
            pods = self.kube.pods(self.run, role)
            return next((pod for pod in pods if pod.status.phase in {"Pending", "Running"}), None)

        return until(look, within, lambda: f"a {role} pod of {self.run}: {self.kube.status(self.run)}")

    def make_ready(self, role: str, address: str | None = None, node: PlayedNode | None = None) -> Any:
        """The pod of a role runs, on a node if one is given, and is Ready; the pod."""
        pod = self.pod(role)
        if node is not None:
            node.take(pod)
        self.make_pod_ready(pod, address)
        return pod

    def make_pod_ready(self, pod: Any, address: str | None = None) -> None:
        """A pod runs and is Ready."""
        self.set_status(
            pod,
            phase="Running",
            podIP=address or next(_addresses),
            conditions=[_condition("Ready", "True"), _condition("ContainersReady", "True")],
            containerStatuses=[_container(pod, {"running": {"startedAt": _now()}}, ready=True)],
        )

    def end(self, role: str, exit_code: int = 0, message: TerminationMessage | str = "") -> Any:
        """The container of a role's pod ends; the pod."""
        pod = self.pod(role)
        self.end_pod(pod, exit_code, message)
        return pod

    def end_pod(self, pod: Any, exit_code: int = 0, message: TerminationMessage | str = "") -> None:
        """The container of a pod ends."""
        terminated = {
            "exitCode": exit_code,
            "reason": "Completed" if exit_code == 0 else "Error",
            "message": message if isinstance(message, str) else json.dumps(message.to_json()),
            "finishedAt": _now(),
            "startedAt": _now(),
        }
        self.set_status(
            pod,
            phase="Succeeded" if exit_code == 0 else "Failed",
            conditions=[_condition("Ready", "False"), _condition("ContainersReady", "False")],
            containerStatuses=[_container(pod, {"terminated": terminated}, ready=False)],
        )

    def wait_with(
        self, pod: Any, reason: str, message: str = "", *, last: dict[str, Any] | None = None
    ) -> None:
        """The container of a pod waits for a reason; `last` is how it ended before."""
        status = _container(pod, {"waiting": {"reason": reason, "message": message}}, ready=False)
        if last is not None:
            status |= {"lastState": {"terminated": last}, "restartCount": 3}
        self.set_status(pod, phase="Pending", containerStatuses=[status])

    def set_status(self, pod: Any, **status: Any) -> None:
        """Write fields of a pod's status."""
        self.kube.core.patch_namespaced_pod_status(pod.metadata.name, self.kube.namespace, {"status": status})

    def to_running(
        self, total: int = 100, address: str | None = None, node: PlayedNode | None = None
    ) -> tuple[Any, Any]:
        """From a new run to a worker that is at work; the pods of server and worker."""
        self.end("plan", message=plan_message(total))
        return self.make_ready("server", node=node), self.make_ready("worker", address, node)

    def jobs(self, role: str) -> list[Any]:
        """Jobs of a role."""
        selector = f"{names.LABEL_RUN}={self.run},{names.LABEL_ROLE}={role}"
        jobs: list[Any] = self.kube.batch.list_namespaced_job(
            self.kube.namespace, label_selector=selector
        ).items
        return jobs

    def config_text(self) -> str:
        """The job config in the cluster, as a job reads it."""
        config_map = self.kube.core.read_namespaced_config_map(f"{self.run}-sr-config", self.kube.namespace)
        return str(config_map.data["job.yaml"])

    def config(self) -> dict[str, Any]:
        """The job config in the cluster."""
        parsed: dict[str, Any] = json.loads(self.config_text())
        return parsed


@contextmanager
def progress_server(first: Progress) -> Iterator[ProgressServer]:
    """A `/progress` on a loopback address of its own, as a pod has it on its own address."""
    server = ProgressServer(next(_addresses), first)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class ProgressServer(ThreadingHTTPServer):
    """Answers with whatever the test says now."""

    daemon_threads = True

    def __init__(self, address: str, first: Progress) -> None:
        super().__init__((address, names.JOB_HTTP_PORT), _ProgressHandler)
        self.address = address
        self.answer = first
        self.redirect: str | None = None
        """Where it sends who asks, in place of an answer."""
        self.asked = 0
        """How often it was asked."""


class _ProgressHandler(BaseHTTPRequestHandler):
    server: ProgressServer

    def do_GET(self) -> None:
        self.server.asked += 1
        body = json.dumps(self.server.answer.to_json()).encode()
        self.send_response(302 if self.server.redirect else 200)
        if self.server.redirect:
            self.send_header("Location", self.server.redirect)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the library's name
        """Say nothing."""


def _container(pod: Any, state: dict[str, Any], *, ready: bool) -> dict[str, Any]:
    container = pod.spec.containers[0]
    return {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "restartCount": 0,
        "ready": ready,
        "state": state,
    }


def _condition(kind: str, status: str) -> dict[str, str]:
    return {"type": kind, "status": status, "lastTransitionTime": _now()}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
