"""The local Kubernetes: a whole cluster on this machine, or a control plane alone for tests."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from draftmill_dev import binaries, cache, console, preflight, toolchain
from draftmill_dev.errors import DevError

DEFAULT_NAME = "demo"
STATES = Path("/var/lib/draftmill")
PACKAGES = (
    "ca-certificates",  # for what is fetched next
    "containerd",
    "runc",
    "containernetworking-plugins",
    "iptables",
    "conntrack",
    "socat",
)
_PROGRAM = "draftmill-kube"
_STOP_SECONDS = 30


@dataclass(frozen=True)
class Network:
    """The addresses of a cluster; what is not given is chosen from what is free.

    Attributes:
        pods: Addresses of pods.
        services: Addresses of Services.
        host: The link between host and node, a /30.
        bridge: Name of the pods' bridge, inside the cluster's network namespace.
    """

    pods: str | None = None
    services: str | None = None
    host: str | None = None
    bridge: str | None = None

    def flags(self) -> list[str]:
        """The flags of `draftmill-kube up` for what is given."""
        chosen = {
            "--pod-cidr": self.pods,
            "--service-cidr": self.services,
            "--host-cidr": self.host,
            "--bridge": self.bridge,
        }
        return [word for flag, value in chosen.items() if value is not None for word in (flag, value)]


@dataclass(frozen=True)
class Cluster:
    """A cluster that runs.

    Attributes:
        name: Its name, which its node has too.
        state: The folder with all of its state.
        programs: kubectl, Helm and the rest.
    """

    name: str
    state: Path
    programs: binaries.Binaries

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig, with its certificates embedded."""
        return self.state / "kubeconfig"

    @property
    def volumes(self) -> Path:
        """The folder for hostPath volumes: it stays when the cluster is stopped."""
        return self.state / "volumes"

    @property
    def audit_log(self) -> Path:
        """One JSON line for each write that the API server answered."""
        return self.state / "audit.log"

    @property
    def cgroup(self) -> str:
        """Name of the control group above all pods, in every hierarchy."""
        return f"draftmill-{self.name}"

    def import_image(self, archive: Path) -> None:
        """Brings the images of an OCI or Docker archive to the node.

        Raises:
            DevError: containerd refused the archive.
        """
        _run(self._ctr("images", "import", str(archive)))

    def has_image(self, reference: str) -> bool:
        """Whether the node has an image of exactly this name."""
        return bool(_run(self._ctr("images", "list", "--quiet", f"name=={reference}")).strip())

    def _ctr(self, *arguments: str) -> list[str]:
        return ["ctr", "--address", str(self.state / "containerd.sock"), "--namespace", "k8s.io", *arguments]


@dataclass(frozen=True)
class ControlPlane:
    """etcd, API server and controller manager on 127.0.0.1, without a node.

    Attributes:
        state: The folder with its state and logs.
    """

    state: Path

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig, with its certificates embedded."""
        return self.state / "kubeconfig"

    @property
    def audit_log(self) -> Path:
        """One JSON line for each write that the API server answered, if asked for."""
        return self.state / "audit.log"


def check_host(name: str = DEFAULT_NAME, *, state: Path | None = None) -> None:
    """Raises DevError when a cluster of this name cannot run here, before anything is fetched or built.

    Args:
        name: The cluster's name.
        state: Folder of its state, if it is not the usual one.
    """
    preflight.check_machine()
    folder = _state(name, state)
    if not (folder / "cluster.json").exists():
        preflight.check_disk([folder, cache.cache_root()])


def up(name: str = DEFAULT_NAME, *, state: Path | None = None, network: Network | None = None) -> Cluster:
    """Starts a cluster, repairs it, or finds it healthy.

    Args:
        name: The cluster's name.
        state: Folder of its state; /var/lib/draftmill/<name> unless given.
        network: Its addresses, where they matter.

    Raises:
        DevError: The machine lacks something, or the cluster did not become healthy.
    """
    folder = _state(name, state)
    check_host(name, state=state)
    with console.step("Debian packages for the node"):
        toolchain.apt_install(PACKAGES)
    with console.step("Kubernetes, CoreDNS and Helm") as step:
        if not binaries.are_built():
            step.note("built from source the first time, about 8 minutes on 2 cores")
        programs = binaries.everything()
    command = [str(programs.kube), "up", "--name", name, "--state-dir", str(folder)]
    command += (network or Network()).flags()
    command += [word for image in programs.images for word in ("--image", str(image))]
    with console.step(f"Cluster {name}"):
        _run(command)
    running = Cluster(name, folder, programs)
    _bypass_proxy(running)
    return running


def down(name: str = DEFAULT_NAME, *, state: Path | None = None, purge: bool = False) -> None:
    """Stops a cluster and removes everything of it but its volumes; harmless when there is none.

    Args:
        name: The cluster's name.
        state: Folder of its state, if it is not the usual one.
        purge: Remove the volumes too, with all data in them.

    Raises:
        DevError: Something could not be removed.
    """
    folder = _state(name, state)
    if not folder.exists():
        return
    preflight.check_machine()
    command = [str(_program(folder)), "down", "--name", name, "--state-dir", str(folder)]
    with console.step(f"Stopping cluster {name}"):
        _run([*command, "--purge"] if purge else command)


def status(name: str = DEFAULT_NAME, *, state: Path | None = None) -> str:
    """Says what runs, in lines for people.

    Raises:
        DevError: The cluster does not run, or is not healthy.
    """
    folder = _state(name, state)
    if not (folder / "cluster.json").exists():
        raise DevError(f"The cluster {name} is not running.")
    return _run([str(_program(folder)), "status", "--name", name, "--state-dir", str(folder)])


@contextlib.contextmanager
def control_plane(state: Path, *, audit: bool = False) -> Iterator[ControlPlane]:
    """Runs a control plane on free ports, as any user, for as long as the block does.

    It ends with this process too, however that ends, because it watches a pipe from it.

    Args:
        state: An empty folder; its path must be short enough for a socket (80 bytes).
        audit: Write the audit log.

    Raises:
        DevError: It did not start.
    """
    command = [str(binaries.kube()), "control-plane", "--state-dir", str(state)]
    state.mkdir(parents=True, exist_ok=True)
    with (
        open(state / "control-plane.log", "w") as log,
        subprocess.Popen(
            [*command, "--audit"] if audit else command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("a pipe was asked for")
        try:
            if not process.stdout.readline():
                raise DevError(
                    f"The control plane did not start:\n{cache.last_lines(state / 'control-plane.log')}"
                )
            yield ControlPlane(state)
        finally:
            process.stdin.close()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def _bypass_proxy(cluster: Cluster) -> None:
    """Tells the programs that this process starts not to ask a proxy for the cluster's addresses."""
    config = json.loads((cluster.state / "cluster.json").read_text())["config"]
    server = str(list(ipaddress.ip_network(config["hostCIDR"]).hosts())[1])  # not every program reads ranges
    own = [server, config["hostCIDR"], config["podCIDR"], config["serviceCIDR"]]
    for name in ("NO_PROXY", "no_proxy"):
        listed = [entry for entry in os.environ.get(name, "").split(",") if entry]
        os.environ[name] = ",".join([*listed, *(entry for entry in own if entry not in listed)])


def _state(name: str, chosen: Path | None) -> Path:
    return (chosen or STATES / name).absolute()


def _program(state: Path) -> Path:
    """The program that runs this cluster, which may be older than the sources here or gone from the cache."""
    try:
        supervisor = json.loads((state / "cluster.json").read_text())["supervisor"]["pid"]
        running = Path(f"/proc/{supervisor}/exe")
        if running.readlink().name.startswith(_PROGRAM):
            return running
    except (FileNotFoundError, PermissionError):
        pass  # nothing runs: any version can clear up
    return binaries.kube()


def _run(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    except FileNotFoundError as error:
        raise DevError(f"{command[0]} is not installed.") from error
    if done.returncode != 0:
        raise DevError("\n".join(text.strip() for text in (done.stdout, done.stderr) if text.strip()))
    return done.stdout
