"""Which cluster the demo touches, and what it says when it is asked in a wrong way."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftmill_dev.__main__ import main
from draftmill_dev.demo import current
from draftmill_dev.kubectl import Kubectl

PRINT_KUBECONFIG = "#!/bin/sh\nprintf '%s' \"$KUBECONFIG\"\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--cluster", "production"], "CLUSTER=production is not known"),
        (["--cluster", "current"], "CLUSTER=current needs IMG_PREFIX"),
        (["--cluster", "current", "--image-prefix", "registry.example.org/me"], "STORAGE_CLASS"),
        (["--storage-class", "fast"], "are for CLUSTER=current"),
        (["--cluster", "current", "--rows", "5"], "--rows are for a demo on a cluster of its own"),
    ],
)
def test_a_demo_that_is_asked_for_in_a_wrong_way_says_so(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", *arguments]) == 1
    assert sentence in capsys.readouterr().err


def test_an_exported_kubeconfig_is_ignored_on_a_cluster_of_our_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/home/me/production")
    kubectl = _kubectl(tmp_path, tmp_path / "kubeconfig")

    assert kubectl.run("get", "pods") == str(tmp_path / "kubeconfig")
    assert kubectl.run_helm("list") == str(tmp_path / "kubeconfig")


def test_the_exported_kubeconfig_is_used_on_the_current_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/home/me/mine")

    assert _kubectl(tmp_path, None).run("get", "pods") == "/home/me/mine"


def test_on_the_current_cluster_the_run_uses_an_image_that_can_be_pulled() -> None:
    manifest = current.manifest("registry.example.org/me/draftmill-vllm-cpu:1")

    assert "image: registry.example.org/me/draftmill-vllm-cpu:1" in manifest
    assert "localhost" not in manifest


def _kubectl(folder: Path, kubeconfig: Path | None) -> Kubectl:
    program = folder / "program"
    program.write_text(PRINT_KUBECONFIG)
    program.chmod(0o755)
    return Kubectl(program, program, kubeconfig, "default")
