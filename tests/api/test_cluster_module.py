"""The Go module of the local Kubernetes: its own tests, vet and format."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from draftmill_dev import golang, venvs

pytestmark = [pytest.mark.api, pytest.mark.timeout(900)]

MODULE = venvs.REPOSITORY / "dev" / "cluster"
# Everything below internal/; the rest is the list of Kubernetes' own commands.
PACKAGES = "./internal/..."


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    environment = golang.environment()
    return subprocess.run(command, cwd=MODULE, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("check", ["test", "vet"])
def test_go_finds_nothing_wrong(check: str) -> None:
    done = run(golang.toolchain().program, check, "-trimpath", PACKAGES)
    assert done.returncode == 0, done.stdout + done.stderr


def test_go_files_are_formatted() -> None:
    done = run(golang.toolchain().program.with_name("gofmt"), "-l", ".")
    assert (done.returncode, done.stdout) == (0, "")
