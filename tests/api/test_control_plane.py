"""The control plane that API tests run on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config

from draftmill_dev.cluster import ControlPlane
from tests.support.waiting import until

pytestmark = pytest.mark.api

HOLD = """
import sys, time
from pathlib import Path
from draftmill_dev import cluster
with cluster.control_plane(Path(sys.argv[1])) as plane:
    print(plane.kubeconfig, flush=True)
    time.sleep(600)
"""


def core(plane: ControlPlane) -> Any:
    settings = client.Configuration()
    config.load_kube_config(str(plane.kubeconfig), client_configuration=settings)
    return client.CoreV1Api(client.ApiClient(settings))


def config_map(name: str, owner: Any = None) -> Any:
    metadata = client.V1ObjectMeta(name=name)
    if owner is not None:
        reference = client.V1OwnerReference(
            api_version="v1", kind="ConfigMap", name=owner.metadata.name, uid=owner.metadata.uid
        )
        metadata.owner_references = [reference]
    return client.V1ConfigMap(metadata=metadata)


def test_two_at_once_know_nothing_of_each_other(
    control_plane: ControlPlane, start_control_plane: Callable[..., ControlPlane]
) -> None:
    other = core(start_control_plane())
    core(control_plane).create_namespaced_config_map("default", config_map("only-here"))
    names = [item.metadata.name for item in other.list_namespaced_config_map("default").items]
    assert "only-here" not in names


def test_collects_objects_whose_owner_is_gone(control_plane: ControlPlane) -> None:
    api = core(control_plane)
    owner = api.create_namespaced_config_map("default", config_map("owner"))
    api.create_namespaced_config_map("default", config_map("owned", owner))
    api.delete_namespaced_config_map("owner", "default")

    def gone() -> bool:
        return all(item.metadata.name != "owned" for item in api.list_namespaced_config_map("default").items)

    until(gone, 30, "the owned object to be collected")


def test_audit_log_has_the_writes_and_no_reads(control_plane: ControlPlane) -> None:
    api = core(control_plane)
    api.create_namespaced_config_map("default", config_map("written"))
    api.read_namespaced_config_map("written", "default")
    until(lambda: '"name":"written"' in control_plane.audit_log.read_text(), 5, "the write in the audit log")
    assert '"verb":"get"' not in control_plane.audit_log.read_text()


def test_ends_with_the_process_that_started_it_even_when_that_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == str(tmp_path / "kubeconfig")
        started = processes_naming(tmp_path)
        holder.send_signal(signal.SIGKILL)
    assert len(started) >= 4
    until(lambda: not processes_naming(tmp_path), 20, "the control plane's processes to end")


def processes_naming(folder: Path) -> list[int]:
    """Processes with the folder on their command line."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if str(folder).encode() in command:
            found.append(int(process.name))
    return found
