"""What the local cluster has in place of large images."""

from __future__ import annotations

import re
from typing import Any

from draftmill_api.v1alpha1.pod import PodOverrides
from draftmill_dev import environment, release, volumes
from draftmill_dev.venvs import REPOSITORY, REQUIREMENTS


def defaults(part: str) -> dict[str, Any]:
    return PodOverrides.model_validate(release.mounted_environment()[part]).to_json()


def test_trainers_find_torch_behind_the_packages_of_their_own_image() -> None:
    (variable,) = defaults("trainer")["env"]
    own, mounted = variable["value"].split(":")
    dockerfile = (REPOSITORY / "dev" / "images" / "Dockerfile.jobs").read_text()
    assert variable["name"] == "PYTHONPATH"
    assert own.removesuffix(f"/{environment.PACKAGES}") in dockerfile.split()
    assert mounted == f"{release.ENVIRONMENT_MOUNT}/{environment.PACKAGES}"


def test_servers_and_trainers_have_the_environment_from_the_same_claim_and_cannot_write_it() -> None:
    for part in ("server", "trainer"):
        (volume,), (mount,) = defaults(part)["volumes"], defaults(part)["volumeMounts"]
        assert volume["persistentVolumeClaim"] == {"claimName": volumes.ENVIRONMENT, "readOnly": True}
        assert (mount["mountPath"], mount["readOnly"]) == (release.ENVIRONMENT_MOUNT, True)


def test_the_image_with_torch_has_all_that_the_other_jobs_have_at_the_same_versions() -> None:
    jobs, train = pinned("jobs"), pinned("train")
    assert jobs <= train
    assert {name for name, _, _ in train - jobs} >= {"torch"}


def test_one_torch_serves_the_trainers_the_model_server_and_the_tests() -> None:
    versions = {
        version for file in ("train", "server", "dev") for name, version, _ in pinned(file) if name == "torch"
    }
    assert len(versions) == 1


def pinned(file: str) -> set[tuple[str, str, str]]:
    """Name, version and marker of each package of a requirement file."""
    text = (REQUIREMENTS / f"{file}.txt").read_text()
    return set(re.findall(r"^([a-z0-9._-]+)==(\S+)(?: ; (.*?))? *\\?$", text, re.MULTILINE))
