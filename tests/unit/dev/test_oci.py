"""Images of one binary."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from draftmill_dev import oci


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    binary = tmp_path / "hello"
    binary.write_bytes(b"\x7fELF")
    oci.write_binary_image(tmp_path / "hello.tar", "draftmill.dev/hello:1", binary)
    return tmp_path / "hello.tar"


def read(archive: Path, name: str) -> bytes:
    with tarfile.open(archive) as tar:
        member = tar.extractfile(name)
        assert member is not None
        return member.read()


def blob(archive: Path, descriptor: dict[str, Any]) -> bytes:
    content = read(archive, f"blobs/{descriptor['digest'].replace(':', '/')}")
    assert len(content) == descriptor["size"]
    assert f"sha256:{hashlib.sha256(content).hexdigest()}" == descriptor["digest"]
    return content


def test_every_blob_is_what_its_descriptor_says(archive: Path) -> None:
    entry = json.loads(read(archive, "index.json"))["manifests"][0]
    manifest = json.loads(blob(archive, entry))
    config = json.loads(blob(archive, manifest["config"]))
    layer = blob(archive, manifest["layers"][0])
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]


def test_the_binary_is_the_entry_point_and_runs_as_nobody_special(archive: Path) -> None:
    entry = json.loads(read(archive, "index.json"))["manifests"][0]
    config = json.loads(blob(archive, json.loads(blob(archive, entry))["config"]))["config"]
    assert entry["annotations"]["io.containerd.image.name"] == "draftmill.dev/hello:1"
    assert config == {"Entrypoint": ["/hello"], "User": "65532:65532"}


def test_the_same_binary_gives_the_same_bytes(archive: Path, tmp_path: Path) -> None:
    oci.write_binary_image(tmp_path / "again.tar", "draftmill.dev/hello:1", tmp_path / "hello")
    assert (tmp_path / "again.tar").read_bytes() == archive.read_bytes()
