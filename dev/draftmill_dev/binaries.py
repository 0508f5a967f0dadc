"""The programs of the local Kubernetes, built from source once, and the images made of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from draftmill_dev import cache, golang, oci, venvs

KUBERNETES_VERSION = "v1.34.4"

_MODULE = venvs.REPOSITORY / "dev" / "cluster"
_PACKAGES = ("./cmd/draftmill-kube", "./cmd/pause", "./cmd/coredns", "helm.sh/helm/v3/cmd/helm")
_VERSION_PACKAGE = "k8s.io/component-base/version"
_CLIENT_VERSION_PACKAGE = "k8s.io/client-go/pkg/version"


@dataclass(frozen=True)
class Binaries:
    """Where the programs are.

    Attributes:
        kube: Kubernetes, etcd and the cluster's own commands in one program.
        bin: A folder for PATH, with `kubectl` and `helm`.
        images: OCI archives that a cluster needs before its first pod: pause and CoreDNS.
    """

    kube: Path
    bin: Path
    images: tuple[Path, ...]

    @property
    def kubectl(self) -> Path:
        """The kubectl of the cluster's own version."""
        return self.bin / "kubectl"

    @property
    def helm(self) -> Path:
        """The real Helm."""
        return self.bin / "helm"


def kube() -> Path:
    """Kubernetes in one program. The first build takes about 7 minutes on 2 cores, later ones seconds.

    Raises:
        CommandError: The build failed.
    """
    return _programs() / "draftmill-kube"


def are_built() -> bool:
    """Whether `everything` has nothing left to build."""
    return all(cache.is_built(cache.path_of(*key)) for key in (_programs_key(), _images_key()))


def everything() -> Binaries:
    """All programs and images, built when they are not there yet.

    Raises:
        CommandError: A build failed.
    """
    programs = _programs()
    images = cache.build(*_images_key(), _make_images)

    def link(folder: Path) -> None:
        (folder / "kubectl").symlink_to(programs / "draftmill-kube")
        (folder / "helm").symlink_to(programs / "helm")

    folder = cache.build("bin", [str(programs)], link)
    return Binaries(programs / "draftmill-kube", folder, (images / "pause.tar", images / "coredns.tar"))


def _programs() -> Path:
    return cache.build(*_programs_key(), _make_programs)


def _programs_key() -> tuple[str, list[Path | str]]:
    return "programs", [*_sources(), KUBERNETES_VERSION, golang.toolchain().version]


def _images_key() -> tuple[str, list[Path | str]]:
    name, inputs = _programs_key()
    return "node-images", [name, *inputs, Path(oci.__file__)]


def _sources() -> list[Path]:
    """The files that the programs are made of: tests of the module are none."""
    files = [
        path for folder in ("cmd", "internal") for path in (_MODULE / folder).rglob("*") if path.is_file()
    ]
    built = sorted(path for path in files if not path.name.endswith("_test.go"))
    return [_MODULE / "go.mod", _MODULE / "go.sum", *built]


def _make_programs(folder: Path) -> None:
    """All in one build, from one set of modules: what several of them need is compiled once."""
    major, minor, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
    values = {"gitVersion": KUBERNETES_VERSION, "gitMajor": major, "gitMinor": minor}
    stamps = [
        f"-X {package}.{name}={value}"
        for package in (_VERSION_PACKAGE, _CLIENT_VERSION_PACKAGE)
        for name, value in values.items()
    ]
    golang.toolchain().build(folder, _PACKAGES, module=_MODULE, ldflags=["-s", "-w", *stamps])


def _make_images(folder: Path) -> None:
    for name in ("pause", "coredns"):
        oci.write_binary_image(folder / f"{name}.tar", f"draftmill.dev/{name}:1", _programs() / name)
