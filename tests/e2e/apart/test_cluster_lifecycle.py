"""Starting, repairing and stopping the local Kubernetes, on a cluster of the test's own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields
from ipaddress import ip_interface, ip_network
from pathlib import Path

import pytest

from draftmill_dev import cache, cluster, venvs
from draftmill_dev.cluster import Cluster, Network
from draftmill_dev.errors import DevError
from draftmill_dev.kubectl import Kubectl
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

NAME = "draftmill-life"
BRIDGE = "lifebridge"
LINK = "10.251.255.252/30"
NETWORK = Network(pods="10.251.128.0/20", services="10.251.0.0/20", host=LINK, bridge=BRIDGE)
KERNEL_SETTINGS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "net/ipv4/ip_forward",
)
PAUSE = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "pause"},
    "spec": {"containers": [{"name": "pause", "image": "draftmill.dev/pause:1", "imagePullPolicy": "Never"}]},
}


@dataclass(frozen=True)
class Traces:
    """What a cluster might leave on a machine."""

    links: frozenset[str]
    routes: frozenset[str]
    mounts: frozenset[str]
    cgroups: frozenset[str]
    firewall: frozenset[str]
    named_namespaces: frozenset[str]
    kernel_settings: frozenset[str]

    def new_since(self, before: Traces) -> dict[str, frozenset[str]]:
        return {field.name: getattr(self, field.name) - getattr(before, field.name) for field in fields(self)}


def of_other_clusters() -> set[str]:
    """Links of clusters that other tests have on this machine at the same time."""
    links = [line.split() for line in output("ip", "-brief", "-4", "address").splitlines()]
    found = {name.partition("@")[0]: addresses for name, _, *addresses in links if name.startswith("draft")}
    own = ip_network(LINK)
    return {
        name
        for name, addresses in found.items()
        if addresses and not any(ip_interface(address).ip in own for address in addresses)
    }


def look() -> Traces:
    others = of_other_clusters()
    settings = {f"{name}={Path('/proc/sys', name).read_text().strip()}" for name in KERNEL_SETTINGS}
    mounts = {line for line in Path("/proc/mounts").read_text().splitlines() if NAME in line}
    cgroups = {str(path) for path in Path("/sys/fs/cgroup").glob(f"**/*{NAME}*")}
    rules = {line for line in output("iptables-save").splitlines() if line.startswith("-")}
    namespaces = Path("/run/netns")
    return Traces(
        links=frozenset(path.name for path in Path("/sys/class/net").iterdir()) - others,
        routes=frozenset(
            line for line in output("ip", "route").splitlines() if others.isdisjoint(line.split())
        ),
        mounts=frozenset(mounts),
        cgroups=frozenset(cgroups),
        firewall=frozenset(rules),
        named_namespaces=frozenset(path.name for path in namespaces.iterdir())
        if namespaces.exists()
        else frozenset(),
        kernel_settings=frozenset(settings),
    )


def output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def up() -> Cluster:
    return cluster.up(NAME, network=NETWORK)


@pytest.fixture(scope="module")
def before() -> Traces:
    output("iptables-save")  # makes the kernel's empty tables, which are no trace of a cluster
    return look()


@pytest.fixture(scope="module")
def alive(before: Traces) -> Iterator[Cluster]:
    with cache.lock(f"cluster-{NAME}"):
        cluster.down(NAME, purge=True)
        try:
            yield up()
        finally:
            cluster.down(NAME, purge=True)


@pytest.fixture(scope="module")
def kubectl(alive: Cluster) -> Kubectl:
    return Kubectl(alive.programs.kubectl, alive.programs.helm, alive.kubeconfig, "default")


@pytest.fixture
def paused(kubectl: Kubectl) -> str:
    kubectl.apply([PAUSE])
    kubectl.run("wait", "--for=condition=Ready", "--timeout=60s", "pod/pause")
    return "pod/pause"


def supervisor(alive: Cluster) -> int:
    return int(json.loads((alive.state / "cluster.json").read_text())["supervisor"]["pid"])


def parts(alive: Cluster) -> dict[str, int]:
    """Program name of each process right below the supervisor, and its id."""
    found = {}
    pids = " ".join(path.read_text() for path in Path(f"/proc/{supervisor(alive)}/task").glob("*/children"))
    for pid in pids.split():
        program = Path(f"/proc/{pid}/cmdline").read_text().split("\0")[0]
        found[Path(program).name] = int(pid)
    return found


def members(namespace: str, inode: int) -> list[int]:
    """Processes in a namespace of a kind."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "ns" / namespace).stat().st_ino == inode:
                found.append(int(process.name))
        except (FileNotFoundError, ProcessLookupError, PermissionError):  # gone, or not for root's eyes
            continue
    return found


def namespaces_of(pid: int) -> dict[str, int]:
    return {kind: Path(f"/proc/{pid}/ns/{kind}").stat().st_ino for kind in ("pid", "net", "mnt")}


def living_in(namespaces: list[dict[str, int]]) -> set[tuple[int, str]]:
    """Id and start time of every process in one of the namespaces.

    Asked before the kernel has seen the last of them: it gives an inode number to the next namespace at once.
    """
    pids = {pid for kinds in namespaces for kind, inode in kinds.items() for pid in members(kind, inode)}
    return {(pid, start) for pid in pids if (start := start_time(pid)) is not None}


def start_time(pid: int) -> str | None:
    """When a process started, in the kernel's ticks; None when there is none, or its end is all there is."""
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state in "ZX" else rest[18]


def still_living(processes: set[tuple[int, str]]) -> set[tuple[int, str]]:
    return {(pid, start) for pid, start in processes if start_time(pid) == start}


def pod_processes() -> list[int]:
    hierarchies = [path for path in Path("/sys/fs/cgroup").glob(f"**/draftmill-{NAME}") if path.is_dir()]
    files = [file for path in hierarchies for file in path.rglob("cgroup.procs")]
    return sorted({int(pid) for file in files for pid in file.read_text().split()})


def restarts(kubectl: Kubectl, pod: str) -> int:
    count = kubectl.run("get", pod, "--output=jsonpath={.status.containerStatuses[0].restartCount}")
    return int(count or 0)


def test_starting_a_running_cluster_does_nothing(alive: Cluster) -> None:
    running = parts(alive)
    up()
    assert parts(alive) == running


def test_ranges_of_a_running_cluster_do_not_change_silently(alive: Cluster) -> None:
    with pytest.raises(
        DevError, match=r"has the range 10\.251\.128\.0/20 for pods, not 10\.252\.0\.0/20: stop it first"
    ):
        cluster.up(NAME, network=Network(pods="10.252.0.0/20"))


def test_ranges_in_use_are_refused(alive: Cluster) -> None:
    with pytest.raises(
        DevError, match=r"the address range 10\.251\.128\.0/24 overlaps 10\.251\.128\.0/20, which is in use"
    ):
        cluster.up("draftmill-clash", network=Network(pods="10.251.128.0/24"))
    cluster.down("draftmill-clash", purge=True)


def test_the_bridge_has_the_name_that_was_asked_for(alive: Cluster, paused: str) -> None:
    interfaces = output("nsenter", "--target", str(supervisor(alive)), "--net", "ip", "-brief", "link")
    assert BRIDGE in interfaces
    assert not Path("/sys/class/net", BRIDGE).exists()


PARTS = (
    "containerd",
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubelet",
)


@pytest.mark.parametrize("part", PARTS)
def test_a_killed_part_comes_back(alive: Cluster, part: str) -> None:
    killed = parts(alive)[part]
    os.kill(killed, signal.SIGKILL)
    up()
    assert parts(alive)[part] != killed


def test_a_pod_whose_shim_is_killed_starts_again(alive: Cluster, kubectl: Kubectl, paused: str) -> None:
    restarted = restarts(kubectl, paused)
    for pid in members("pid", namespaces_of(supervisor(alive))["pid"]):
        if "containerd-shim" in Path(f"/proc/{pid}/cmdline").read_text():
            os.kill(pid, signal.SIGKILL)
    until(lambda: restarts(kubectl, paused) > restarted, 60, "the pod to run again")
    up()


def test_killing_the_first_process_alone_ends_all_and_is_repaired(alive: Cluster) -> None:
    processes = living_in([namespaces_of(supervisor(alive))])
    os.kill(supervisor(alive), signal.SIGKILL)
    up()
    until(lambda: not still_living(processes), 10, "the dead cluster's processes to be gone")


def test_after_killing_everything_another_clone_repairs_it(
    alive: Cluster, kubectl: Kubectl, paused: str, tmp_path: Path
) -> None:
    restarted = restarts(kubectl, paused)
    before_kill = pod_processes()
    namespaces = namespaces_of(supervisor(alive))
    processes = living_in([namespaces])
    for pid in {*members("pid", namespaces["pid"]), *before_kill}:
        with_no_error_if_gone(pid)

    for folder in ("dev", "requirements"):
        shutil.copytree(venvs.REPOSITORY / folder, tmp_path / folder)
    command = [sys.executable, "-m", "draftmill_dev", "cluster-up", "--name", NAME]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(tmp_path / "dev")})

    until(lambda: restarts(kubectl, paused) > restarted, 60, "the pod to run again")
    assert set(pod_processes()).isdisjoint(before_kill)
    until(lambda: not still_living(processes), 10, "the dead cluster's processes to be gone")


def with_no_error_if_gone(pid: int) -> None:
    """Kills a process that may have ended with the one before it."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def test_stopping_leaves_nothing_but_the_volumes(alive: Cluster, before: Traces, paused: str) -> None:
    written = alive.volumes / "data" / "kept.txt"
    written.parent.mkdir(parents=True)
    written.write_text("kept")
    processes = living_in([namespaces_of(pid) for pid in {supervisor(alive), *pod_processes()}])
    during = look().new_since(before)
    assert during["links"]
    assert during["cgroups"]
    assert not during["mounts"]
    assert not during["firewall"]
    assert not during["kernel_settings"]

    cluster.down(NAME)

    after = look().new_since(before)
    for kind, new in during.items():
        assert not new & after[kind], f"{kind} left behind"
    assert not still_living(processes)
    assert [path.name for path in alive.state.iterdir()] == ["volumes"]
    assert written.read_text() == "kept"

    cluster.down(NAME, purge=True)
    assert not alive.state.exists()


def test_stopping_a_stopped_cluster_is_harmless(alive: Cluster) -> None:
    cluster.down(NAME)
    cluster.down(NAME)
    with pytest.raises(DevError, match="is not running"):
        cluster.status(NAME)
