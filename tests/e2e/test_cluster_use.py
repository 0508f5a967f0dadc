"""What people do with a cluster works on the local one."""

from __future__ import annotations

import http.server
import ipaddress
import json
import re
import socketserver
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from draftmill_dev.cluster import Cluster
from draftmill_dev.errors import DevError
from draftmill_dev.kubectl import Kubectl
from tests.support.waiting import until

pytestmark = pytest.mark.e2e

NAMESPACE = "cluster-use"
READY = "--for=condition=Ready"
LIMIT = "--timeout=60s"
FRONT = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "front"},
    "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
}


class Greeting(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello")


@pytest.fixture(scope="module")
def kubectl(cluster: Cluster) -> Iterator[Kubectl]:
    programs = cluster.programs
    found = Kubectl(programs.kubectl, programs.helm, cluster.kubeconfig, NAMESPACE)
    found.run("create", "namespace", NAMESPACE)
    yield found
    found.run("delete", "namespace", NAMESPACE, "--wait=false")


@pytest.fixture(scope="module")
def web(kubectl: Kubectl, kube_image: str) -> str:
    """A pod behind the Service `front`, whose account may read pods: it serves the API on 8080."""
    kubectl.run("create", "role", "reader", "--verb=get,list", "--resource=pods")
    kubectl.run("create", "rolebinding", "reader", "--role=reader", f"--serviceaccount={NAMESPACE}:default")
    command = ["kubectl", "proxy", "--address=0.0.0.0", "--port=8080", "--accept-hosts=.*"]
    kubectl.apply([pod("web", kube_image, command), FRONT])
    kubectl.run("wait", READY, LIMIT, "pod/web")
    until(lambda: answers(f"http://{service_address(kubectl)}"), 10, "the Service to have its pod")
    return "web"


def pod(name: str, image: str, command: list[str], **resources: Any) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "Never",
        "args": command,
        "resources": resources,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 1},
    }


def service_address(kubectl: Kubectl) -> str:
    return kubectl.run("get", "service/front", "--output=jsonpath={.spec.clusterIP}:80")


def answers(url: str) -> bool:
    try:
        return bool(read(f"{url}/version"))
    except OSError:
        return False


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 (an http address of ours)
        return str(answer.read().decode())


def test_logs_show_what_a_container_printed(kubectl: Kubectl, web: str) -> None:
    assert "Starting to serve on [::]:8080" in kubectl.run("logs", web)


def test_exec_runs_a_program_that_reaches_the_api_as_the_pods_account(kubectl: Kubectl, web: str) -> None:
    listed = kubectl.run("exec", web, "--", "/draftmill-kube", "kubectl", "get", "pods", "--output=name")
    assert "pod/web" in listed


def test_a_pod_may_do_no_more_than_its_account(kubectl: Kubectl, web: str) -> None:
    with pytest.raises(DevError, match="cannot delete resource"):
        kubectl.run("exec", web, "--", "/draftmill-kube", "kubectl", "delete", "pod/web")


def test_a_pod_reaches_a_service_by_its_name(kubectl: Kubectl, web: str) -> None:
    for name in ("front", f"front.{NAMESPACE}", f"front.{NAMESPACE}.svc.cluster.local"):
        command = ["kubectl", "--server", f"http://{name}", "get", "--raw", "/version"]
        assert '"gitVersion": "v1.34.4"' in kubectl.run("exec", web, "--", "/draftmill-kube", *command)


def test_names_outside_the_cluster_fail_at_once(kubectl: Kubectl, web: str) -> None:
    command = ["kubectl", "--server", "http://draftmill.invalid", "get", "--raw", "/version"]
    with pytest.raises(DevError, match="no such host"):
        kubectl.run("exec", web, "--", "/draftmill-kube", *command)


def test_port_forward_reaches_a_pod(kubectl: Kubectl, cluster: Cluster, web: str) -> None:
    command = [
        str(cluster.programs.kubectl),
        "--namespace",
        NAMESPACE,
        "port-forward",
        "service/front",
        ":80",
    ]
    environment = {"KUBECONFIG": str(cluster.kubeconfig)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as forward:
        assert forward.stdout is not None
        port = re.search(r"127\.0\.0\.1:(\d+)", forward.stdout.readline())
        assert port is not None
        try:
            assert "v1.34.4" in read(f"http://127.0.0.1:{port[1]}/version")
        finally:
            forward.terminate()


def test_this_machine_reaches_pods_and_services_by_address(kubectl: Kubectl, web: str) -> None:
    pod_address = kubectl.run("get", "pod/web", "--output=jsonpath={.status.podIP}:8080")
    for address in (pod_address, service_address(kubectl)):
        assert "v1.34.4" in read(f"http://{address}/version")


def test_a_pod_reaches_this_machine_at_its_end_of_the_link(
    kubectl: Kubectl, cluster: Cluster, web: str
) -> None:
    link = json.loads((cluster.state / "cluster.json").read_text())["config"]["hostCIDR"]
    here = str(next(ipaddress.ip_network(link).hosts()))
    with socketserver.TCPServer((here, 0), Greeting) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://{here}:{server.server_address[1]}"
        try:
            command = ["kubectl", "--server", url, "get", "--raw", "/"]
            assert kubectl.run("exec", web, "--", "/draftmill-kube", *command) == "hello"
        finally:
            server.shutdown()


def test_the_node_looks_like_eight_blackwell_gpus(kubectl: Kubectl) -> None:
    node = kubectl.get("node", "draftmill-test")
    assert node is not None
    labels = node["metadata"]["labels"]
    assert labels["nvidia.com/gpu.product"] == "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition"
    assert labels["nvidia.com/gpu.count"] == "8"
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "8"


def test_gpus_are_counted_by_the_scheduler(kubectl: Kubectl, kube_image: str) -> None:
    hold = ["kubectl", "proxy", "--port=0"]
    eight = {"limits": {"nvidia.com/gpu": 8}}
    kubectl.apply([pod("first", kube_image, hold, **eight)])
    kubectl.run("wait", READY, LIMIT, "pod/first")
    kubectl.apply([pod("second", kube_image, hold, **eight)])

    def refusal() -> str:
        return kubectl.run("get", "pod/second", "--output=jsonpath={.status.conditions[0].message}")

    assert "Insufficient nvidia.com/gpu" in until(refusal, 30, "the scheduler's words")
    kubectl.run("delete", "pod/first", "pod/second", "--now")


def test_the_audit_log_counts_writes(kubectl: Kubectl, cluster: Cluster) -> None:
    kubectl.run("create", "configmap", "counted-write")
    until(lambda: '"name":"counted-write"' in cluster.audit_log.read_text(), 5, "the write in the audit log")
