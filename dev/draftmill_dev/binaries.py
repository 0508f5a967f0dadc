"""The programs of the local Kubernetes, built from source once, and the images made of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from draftmill_dev import cache, golang, oci, venvs

KUBERNETES_VERSION = "v1.34.4"

_COREDNS = "github.com/coredns/coredns@v1.12.4"
_HELM = "helm.sh/helm/v3/cmd/helm@v3.19.0"
_MODULE = venvs.REPOSITORY / "dev" / "cluster"
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
    """Kubernetes in one program. The first build takes about 5 minutes on 2 cores, later ones seconds.

    Raises:
        CommandError: The build failed.
    """
    return cache.build("kube", _kube_key(), _make_kube) / "draftmill-kube"


def are_built() -> bool:
    """Whether `everything` has nothing left to build."""
    folders = (
        cache.path_of("kube", _kube_key()),
        cache.path_of("node-images", _images_key()),
        cache.path_of("helm", [_HELM]),
    )
    return all(cache.is_built(folder) for folder in folders)


def everything() -> Binaries:
    """All programs and images, built when they are not there yet.

    Raises:
        CommandError: A build failed.
    """
    program = kube()
    images = cache.build("node-images", _images_key(), _make_images)
    helm = cache.build("helm", [_HELM], lambda folder: golang.toolchain().install(folder, _HELM)) / "helm"

    def link(folder: Path) -> None:
        (folder / "kubectl").symlink_to(program)
        (folder / "helm").symlink_to(helm)

    folder = cache.build("bin", [str(program), str(helm)], link)
    return Binaries(program, folder, (images / "pause.tar", images / "coredns.tar"))


def _kube_key() -> list[Path | str]:
    return [*_sources(), KUBERNETES_VERSION, golang.toolchain().version]


def _images_key() -> list[Path | str]:
    return [_MODULE / "cmd" / "pause", _COREDNS, Path(oci.__file__)]


def _sources() -> list[Path]:
    """The files that the program is made of: tests of the module are none."""
    files = [
        path for folder in ("cmd", "internal") for path in (_MODULE / folder).rglob("*") if path.is_file()
    ]
    built = sorted(path for path in files if not path.name.endswith("_test.go"))
    return [_MODULE / "go.mod", _MODULE / "go.sum", *built]


def _make_kube(folder: Path) -> None:
    major, minor, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
    values = {"gitVersion": KUBERNETES_VERSION, "gitMajor": major, "gitMinor": minor}
    stamps = [
        f"-X {package}.{name}={value}"
        for package in (_VERSION_PACKAGE, _CLIENT_VERSION_PACKAGE)
        for name, value in values.items()
    ]
    ldflags = " ".join(["-s -w", *stamps])
    golang.toolchain().build(
        folder, "./cmd/draftmill-kube", folder / "draftmill-kube", module=_MODULE, ldflags=ldflags
    )


def _make_images(folder: Path) -> None:
    go = golang.toolchain()
    go.build(folder, "./cmd/pause", folder / "pause", module=_MODULE)
    oci.write_binary_image(folder / "pause.tar", "draftmill.dev/pause:1", folder / "pause")
    coredns = cache.build("coredns", [_COREDNS], lambda made: go.install(made, _COREDNS)) / "coredns"
    oci.write_binary_image(folder / "coredns.tar", "draftmill.dev/coredns:1", coredns)
