"""Virtual environments, made by uv from requirement files with hashes."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

from draftmill_dev import cache, toolchain

REPOSITORY = Path(__file__).resolve().parents[2]
REQUIREMENTS = REPOSITORY / "requirements"
_DEVELOPMENT = "venv-dev"


def uv() -> Path:
    """The uv program, at the version in `requirements/bootstrap.txt`.

    Raises:
        CommandError: It could not be fetched.
    """
    pinned = REQUIREMENTS / "bootstrap.txt"

    def make(folder: Path) -> None:
        if find_spec("ensurepip") is None:  # Debian ships it apart from python3
            toolchain.apt_install(["python3-venv"])
        venv = folder / "venv"
        cache.run([sys.executable, "-m", "venv", venv], folder)
        cache.run([venv / "bin/python", "-m", "pip", "install", "--require-hashes", "-r", pinned], folder)

    return cache.build("uv", [pinned, sys.version], make) / "venv" / "bin" / "uv"


def create(folder: Path, python: str, requirements: Path, *options: str) -> Path:
    """Makes `<folder>/venv` with exactly the packages of a requirement file; it may be mounted anywhere.

    Args:
        folder: The cache folder being built.
        python: The interpreter, which must stand at the same path wherever the environment is used.
        requirements: File with pinned versions and hashes.
        options: Further flags of `uv pip install`.

    Raises:
        CommandError: A package could not be fetched or installed.
    """
    venv = folder / "venv"
    run_uv(["venv", "--relocatable", "--python", python, venv], folder)
    exactly: list[str | Path] = ["--no-deps", "--require-hashes", "-r", requirements]
    run_uv(["pip", "install", "--python", venv, *options, *exactly], folder)
    return venv


def development() -> Path:
    """Makes the environment of tests and tools, with this checkout installed, and links it as `.venv`.

    Every checkout has its own, so that two never import each other's sources. It
    costs seconds: the packages are hard links into uv's cache.
    """

    def make(folder: Path) -> None:
        venv = create(folder, sys.executable, REQUIREMENTS / "dev.txt")
        run_uv(
            [
                "pip",
                "install",
                "--python",
                venv,
                "--no-deps",
                "--no-build-isolation",
                "--editable",
                REPOSITORY,
            ],
            folder,
        )

    venv = cache.build(_DEVELOPMENT, _development_key(), make) / "venv"
    _link(REPOSITORY / ".venv", venv)
    return venv


def is_made() -> bool:
    """Whether `development` has nothing to do."""
    folder = cache.path_of(_DEVELOPMENT, _development_key())
    link = REPOSITORY / ".venv"
    return cache.is_built(folder) and link.is_symlink() and link.readlink() == folder / "venv"


def _development_key() -> list[Path | str]:
    return [REQUIREMENTS / "dev.txt", REPOSITORY / "pyproject.toml", str(REPOSITORY), sys.version]


def run_uv(arguments: list[str | Path], folder: Path) -> None:
    """Runs uv with its output in the log of a folder being built; what it downloads is kept in the cache."""
    variables = {
        "UV_CACHE_DIR": str(cache.cache_root() / "uv"),
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_SYSTEM_CERTS": "1",  # as pip and Go do: a proxy that the machine trusts is trusted
    }
    cache.run([uv(), *arguments], folder, env=variables)


def _link(link: Path, target: Path) -> None:
    if link.is_symlink() and link.readlink() == target:
        return
    fresh = link.with_name(f"{link.name}.{os.getpid()}")
    fresh.symlink_to(target)
    fresh.replace(link)
