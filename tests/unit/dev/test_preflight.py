"""What is said when a machine cannot run a node."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from draftmill_dev import binaries, cluster, preflight, toolchain
from draftmill_dev.__main__ import main
from draftmill_dev.demo import ahead
from draftmill_dev.errors import DevError

ROOT, SOMEBODY = 0, 1000


def controllers(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).mkdir()
        (folder / name / "cgroup.procs").touch()
    return folder


def test_somebody_who_is_not_root_is_told_to_be() -> None:
    with pytest.raises(DevError, match="needs root: run this as root"):
        preflight.check_machine(user=SOMEBODY)


def test_missing_controllers_are_named(tmp_path: Path) -> None:
    cgroups = controllers(tmp_path, "cpu", "cpuacct", "memory")
    with pytest.raises(DevError, match=r"not available below .*: cpuset, pids\."):
        preflight.check_machine(user=ROOT, cgroups=cgroups)


def test_missing_controllers_of_the_unified_layout_are_named(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory\n")
    with pytest.raises(DevError, match=r"not available below .*: pids\."):
        preflight.check_machine(user=ROOT, cgroups=tmp_path)


def test_both_layouts_with_everything_are_accepted(tmp_path: Path) -> None:
    first, second = tmp_path / "v1", tmp_path / "v2"
    first.mkdir()
    second.mkdir()
    controllers(first, "cpu", "cpuacct", "cpuset", "memory", "pids")
    (second / "cgroup.controllers").write_text("cpuset cpu io memory hugetlb pids\n")
    for layout in (first, second):
        preflight.check_machine(user=ROOT, cgroups=layout)


def test_too_little_disk_is_told_with_both_figures(tmp_path: Path) -> None:
    with pytest.raises(DevError, match=r"has [\d.]+ GB free and 1000000 GB are needed: make room"):
        preflight.check_disk([tmp_path / "not" / "yet"], least=10**15)


def test_enough_disk_is_enough(tmp_path: Path) -> None:
    preflight.check_disk([tmp_path], least=1)


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is fetched or built, on a machine with no cluster."""
    begun: list[str] = []
    for module, name in ((ahead, "begin"), (toolchain, "apt_install"), (binaries, "everything")):
        monkeypatch.setattr(module, name, lambda *_, name=name: begun.append(name))
    monkeypatch.setattr(cluster, "STATES", tmp_path / "states")
    monkeypatch.setenv("DRAFTMILL_CACHE", str(tmp_path / "cache"))
    return begun


@pytest.mark.parametrize("command", ["demo", "cluster-up"])
def test_too_little_disk_is_told_before_anything_is_fetched_or_built(
    command: str,
    begun: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(preflight, "check_machine", lambda: None)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=19 * 10**9))

    assert main([command]) == 1
    assert f"{tmp_path} has 19.0 GB free and 20 GB are needed: make room" in capsys.readouterr().err
    assert begun == []


@pytest.mark.parametrize("command", ["demo", "cluster-up"])
def test_who_is_not_root_is_told_before_anything_is_fetched_or_built(
    command: str, begun: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: SOMEBODY)

    assert main([command]) == 1
    assert "needs root: run this as root" in capsys.readouterr().err
    assert begun == []
