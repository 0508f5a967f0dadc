from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from draftmill_cli.main import main
from draftmill_dev.cluster import ControlPlane
from tests.support import kube
from tests.support.waiting import until

pytestmark = pytest.mark.api

SPEC = {
    "model": {"name": "smol", "path": "smol"},
    "storage": {
        "models": {"persistentVolumeClaim": {"claimName": "models"}},
        "data": {"persistentVolumeClaim": {"claimName": "data"}},
    },
    "endpoints": [{"name": "one", "url": "http://10.0.0.5:8000", "engine": "VLLM"}],
    "output": {"path": "out"},
    "datasets": [{"name": "B1", "source": {"file": {"path": "b1.jsonl"}}}],
}
NAMESPACE = "cli"


class Runs:
    """SynthRuns of a namespace, with the operator's part played by the test."""

    def __init__(self, cluster: kube.Kube) -> None:
        self.kube = cluster

    def create(self, name: str, **status: Any) -> None:
        kind = {"apiVersion": "draftmill.dev/v1alpha1", "kind": "SynthRun"}
        self.kube.create_run({**kind, "metadata": {"name": name, "labels": {"team": "a"}}, "spec": SPEC})
        if status:
            self.report(name, **status)

    def report(self, name: str, **status: Any) -> None:
        self.kube.objects.patch_namespaced_custom_object_status(
            "draftmill.dev", "v1alpha1", NAMESPACE, "synthruns", name, {"status": status}
        )


@pytest.fixture(scope="module")
def namespace(control_plane: ControlPlane, crds: None) -> kube.Kube:
    cluster = kube.connect(control_plane.kubeconfig, NAMESPACE)
    cluster.core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=NAMESPACE)))
    return cluster


@pytest.fixture
def runs(namespace: kube.Kube) -> Iterator[Runs]:
    yield Runs(namespace)
    for name in namespace.list_runs():
        namespace.delete_run(name)


@pytest.fixture
def draftmill(control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the control plane the one that the command talks to."""
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig))


@pytest.mark.parametrize(
    ("command", "before", "phase", "after"),
    [
        ("suspend", {}, "Running", {"suspend": True}),
        ("resume", {"suspend": True}, "Suspended", {"suspend": False}),
        ("resume", {}, "Paused", {"suspend": False, "resumeToken": re.compile(r"20\d\d-.*Z")}),
        ("restart", {}, "Running", {"restart": re.compile(r"20\d\d-.*Z")}),
    ],
)
@pytest.mark.usefixtures("draftmill")
def test_a_run_is_stopped_and_sent_on(
    command: str, before: dict[str, Any], phase: str, after: dict[str, Any], runs: Runs
) -> None:
    runs.create("turned", phase=phase)
    runs.kube.patch_run("turned", {"spec": before})

    assert main([command, "turned", "-n", NAMESPACE]) == 0

    spec = (runs.kube.run("turned") or {})["spec"]
    for field, value in after.items():
        assert value.fullmatch(spec[field]) if isinstance(value, re.Pattern) else spec[field] == value


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("suspend", "is Succeeded: it holds nothing"),
        ("resume", "is Succeeded: there is nothing to resume"),
        ("restart", "is Succeeded: a Failed run is run again by `draftmill retry over`"),
    ],
)
def test_an_ended_run_is_not_turned_and_the_sentence_says_why(
    command: str, words: str, runs: Runs, draftmill: None, capsys: pytest.CaptureFixture[str]
) -> None:
    runs.create("over", phase="Succeeded", completionTime="2026-01-01T00:00:00Z")

    assert main([command, "over", "-n", NAMESPACE]) == 1

    assert words in capsys.readouterr().err


def test_get_prints_the_columns_of_the_crd(
    runs: Runs, draftmill: None, capsys: pytest.CaptureFixture[str]
) -> None:
    runs.create("demo", phase="Running", progress={"done": 60, "total": 200}, reason="")

    assert main(["get", "-n", NAMESPACE]) == 0

    header, row = capsys.readouterr().out.splitlines()
    assert header.split()[:5] == ["NAME", "PHASE", "DONE", "TOTAL", "ERRORS"]
    assert re.match(r"demo +Running +60 +200 ", row)

    assert main(["get", "-A", "-o", "wide"]) == 0
    everywhere = capsys.readouterr().out
    assert everywhere.startswith("NAMESPACE ")
    assert "MODEL" in everywhere.split()
    assert re.search(rf"^{NAMESPACE} +(sr/)?demo +Running +60 ", everywhere, re.MULTILINE)


def test_a_run_that_is_not_there_is_said_in_a_sentence(
    runs: Runs, draftmill: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", "none", "-n", NAMESPACE]) == 1
    assert "there is no none in namespace cli" in capsys.readouterr().err

    assert main(["get", "-n", NAMESPACE]) == 0
    assert "No runs found in namespace cli." in capsys.readouterr().out


def test_status_tells_the_reason(runs: Runs, draftmill: None, capsys: pytest.CaptureFixture[str]) -> None:
    runs.create("demo", phase="Failed", reason="ModelNotFound", message="there is no folder /models/smol")

    assert main(["status", "demo", "-n", NAMESPACE]) == 0
    assert "ModelNotFound: there is no folder /models/smol" in capsys.readouterr().out


@pytest.mark.parametrize(("end", "code"), [("Succeeded", 0), ("Failed", 1)])
def test_watch_follows_a_run_to_its_end(
    runs: Runs, draftmill: None, capsys: pytest.CaptureFixture[str], end: str, code: int
) -> None:
    runs.create("demo", phase="Running", progress={"done": 1, "total": 2})
    codes: list[int] = []
    watching = threading.Thread(target=lambda: codes.append(main(["watch", "demo", "-n", NAMESPACE])))
    watching.start()

    until(lambda: "Running, 1/2" in capsys.readouterr().out, 20, "first line")
    runs.report("demo", phase=end, progress={"done": 2, "total": 2})
    watching.join(timeout=20)

    assert codes == [code]
    assert re.search(rf"\d\d:\d\d:\d\d {end}, 2/2 \(0 errors\)", capsys.readouterr().out)


def test_watch_ends_when_the_run_is_deleted(
    runs: Runs, draftmill: None, capsys: pytest.CaptureFixture[str]
) -> None:
    runs.create("demo", phase="Running")
    codes: list[int] = []
    watching = threading.Thread(target=lambda: codes.append(main(["watch", "demo", "-n", NAMESPACE])))
    watching.start()
    until(lambda: "Running" in capsys.readouterr().out, 20, "first line")

    runs.kube.delete_run("demo")
    watching.join(timeout=20)

    assert codes == [1]
    assert "SynthRun cli/demo was deleted" in capsys.readouterr().err


def test_retry_makes_a_failed_run_anew(
    runs: Runs, draftmill: None, capsys: pytest.CaptureFixture[str]
) -> None:
    runs.create("demo", phase="Failed")
    old = runs.kube.run("demo")
    assert old is not None

    assert main(["retry", "demo", "-n", NAMESPACE]) == 0

    new = runs.kube.run("demo")
    assert new is not None
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    assert new["metadata"]["labels"] == {"team": "a"}
    assert new["spec"] == old["spec"]
    assert "status" not in new


def test_retry_leaves_a_running_run_alone(
    runs: Runs, draftmill: None, capsys: pytest.CaptureFixture[str]
) -> None:
    runs.create("demo", phase="Running")

    assert main(["retry", "demo", "-n", NAMESPACE]) == 1
    assert "only a Failed run is retried" in capsys.readouterr().err


def test_logs_say_where_the_run_is_when_there_is_no_pod(
    runs: Runs, draftmill: None, capsys: pytest.CaptureFixture[str]
) -> None:
    runs.create("demo", phase="Starting", servers={"ready": 0, "wanted": 1, "summary": "0/1"})

    assert main(["logs", "demo", "-n", NAMESPACE]) == 1
    assert "demo has no worker pod now. Starting, servers 0/1" in capsys.readouterr().err


def test_the_command_is_a_plugin_of_kubectl(runs: Runs, draftmill: None, tmp_path: Path) -> None:
    plugin = Path(sys.executable).with_name("kubectl-draftmill")

    done = subprocess.run([plugin, "status", "none"], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert done.stderr.startswith("kubectl draftmill: there is no none")
