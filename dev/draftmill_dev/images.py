"""Container images without Docker and without a registry: a base by mmdebstrap, the rest by buildah.

Each image is an archive in the cache, named after the content it was made from,
so that an unchanged source is neither built nor imported a second time.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from draftmill_dev import cache, toolchain
from draftmill_dev.cluster import Cluster
from draftmill_dev.venvs import REPOSITORY, REQUIREMENTS

OPERATOR = "operator"
JOBS = "jobs"
SERVER = "server"
NAMES = (OPERATOR, JOBS, SERVER)
SERVER_TAG = "demo"  # runs name the server's image, so its tag does not change with its content

_DOCKERFILES = REPOSITORY / "dev" / "images"
_SOURCES: dict[str, tuple[Path, ...]] = {
    OPERATOR: (
        REPOSITORY / "pyproject.toml",
        REQUIREMENTS / "build.txt",
        REQUIREMENTS / "operator.txt",
        REPOSITORY / "api" / "src",
        REPOSITORY / "operator" / "src",
    ),
    JOBS: (
        REPOSITORY / "pyproject.toml",
        REQUIREMENTS / "build.txt",
        REQUIREMENTS / "jobs.txt",
        REPOSITORY / "api" / "src",
        REPOSITORY / "jobs" / "src",
        REPOSITORY / "cli" / "src",
    ),
    SERVER: (),
}
_BUILDAH = ("buildah", "golang-github-containers-common")  # the second brings its policy file
_BASE_PACKAGES = "ca-certificates,python3,python3-venv,usr-is-merged"
_BASE_OPTIONS = (
    "--variant=minbase",
    f"--include={_BASE_PACKAGES}",
    "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    '--customize-hook=rm -f "$1/etc/resolv.conf" "$1/etc/hostname"',
)
_ARCHIVES_KEPT = 4
_TLS_AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")


@dataclass(frozen=True)
class Image:
    """An image in the cache.

    Attributes:
        reference: Name and tag; the tag is the hash of what it was made from, or `SERVER_TAG`.
        archive: The image as a Docker archive.
    """

    reference: str
    archive: Path

    @property
    def repository(self) -> str:
        """The reference without its tag."""
        return self.reference.rpartition(":")[0]

    @property
    def tag(self) -> str:
        """The tag alone."""
        return self.reference.rpartition(":")[2]


def build(name: str) -> Image:
    """Returns one of `NAMES`, built when it is not there yet.

    Raises:
        CommandError: The build failed.
    """
    dockerfile = _DOCKERFILES / f"Dockerfile.{name}"
    key = [dockerfile, *_SOURCES[name], *_base_key()]
    tag = SERVER_TAG if name == SERVER else cache.content_hash(key)
    reference = f"localhost/draftmill-{name}:{tag}"

    def make(folder: Path) -> None:
        base = _base()
        toolchain.apt_install(_BUILDAH)
        options = ["--isolation", "chroot", "--layers", "--build-arg", f"BASE_IMAGE={base}"]
        if _TLS_AUTHORITIES.exists():  # where a proxy opens TLS; for the build alone, not in the image
            options += ["--volume", f"{_TLS_AUTHORITIES}:{_TLS_AUTHORITIES}:ro"]
        with cache.lock("buildah"):
            _buildah(folder, "build", *options, "--file", dockerfile, "--tag", reference, REPOSITORY)
            _buildah(folder, "push", reference, f"docker-archive:{folder / 'image.tar'}:{reference}")
            _forget_old(name)

    return Image(reference, cache.build(f"image-{name}", key, make) / "image.tar")


def load(cluster: Cluster, image: Image) -> None:
    """Brings an image to the cluster's node unless it is there.

    Raises:
        DevError: The import failed.
    """
    if image.tag == SERVER_TAG or not cluster.has_image(image.reference):
        cluster.import_image(image.archive)


def push(image: Image, prefix: str) -> str:
    """Pushes an image to a registry and returns its name there.

    Args:
        image: The image.
        prefix: Registry and path, for example `registry.example.org/team`.

    Raises:
        CommandError: The registry refused it.
    """
    target = f"{prefix.rstrip('/')}/{image.reference.rpartition('/')[2]}"
    toolchain.apt_install(_BUILDAH)
    folder = image.archive.parent
    with cache.lock("buildah"):
        _buildah(folder, "pull", "--policy", "always", f"docker-archive:{image.archive}")
        _buildah(folder, "push", image.reference, f"docker://{target}")
    return target


def _forget_old(name: str) -> None:
    """Removes all but the newest archives of an image: each change of a source makes one, of up to 700 MB."""
    folders = sorted(cache.cache_root().glob(f"image-{name}-*"), key=lambda folder: folder.stat().st_mtime)
    for folder in folders[:-_ARCHIVES_KEPT]:
        shutil.rmtree(folder)


def _base() -> str:
    """The image that the others start from, in buildah's store: Debian with Python, 130 MB."""
    reference = f"localhost/draftmill-base:{cache.content_hash(_base_key())}"

    def make(folder: Path) -> None:
        toolchain.apt_install(["mmdebstrap"])
        sources = folder / "sources.list"
        sources.write_text("\n".join(_debian_sources()) + "\n")
        cache.run(["mmdebstrap", *_BASE_OPTIONS, _codename(), folder / "base.tar", sources], folder)

    folder = cache.build("image-base", _base_key(), make)
    toolchain.apt_install(_BUILDAH)
    with cache.lock("buildah"):
        if not _in_store(reference):
            _commit_base(folder, reference)
    return reference


def _commit_base(folder: Path, reference: str) -> None:
    name = f"draftmill-base-{os.getpid()}"
    _buildah(folder, "from", "--name", name, "scratch")
    try:
        _buildah(folder, "add", name, folder / "base.tar", "/")
        _buildah(folder, "commit", name, reference)
    finally:
        _buildah(folder, "rm", name)


def _base_key() -> list[Path | str]:
    return [_codename(), *_BASE_OPTIONS]


def _codename() -> str:
    for line in Path("/etc/os-release").read_text().splitlines():
        if line.startswith("VERSION_CODENAME="):
            return line.partition("=")[2].strip('"')
    return "stable"


def _debian_sources() -> Iterable[str]:
    """This machine's package sources, as far as they are Debian's: a mirror here serves the images too."""
    entry = "$(ORIGIN)\tdeb $(REPO_URI) $(RELEASE) $(COMPONENT)"
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", entry, "Created-By: Packages"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    origins = (line.split("\t", 1) for line in listed.splitlines())
    return sorted({source for origin, source in origins if origin == "Debian"})


def _in_store(reference: str) -> bool:
    command = [*_buildah_program(), "inspect", "--type", "image", reference]
    asked = subprocess.run(command, capture_output=True, check=False)
    return asked.returncode == 0


def _buildah(folder: Path, *arguments: str | Path) -> None:
    cache.run([*_buildah_program(), *arguments], folder)


def _buildah_program() -> list[str]:
    """Buildah with a store of its own: images of the person who works here are not touched."""
    store = cache.cache_root() / "buildah"
    return ["buildah", "--root", str(store), "--runroot", f"{store}-run", "--storage-driver", "overlay"]
