"""The run's volumes as pod volumes, and where a run's paths lie inside its pods."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Final

from draftmill_api import names as api_names
from draftmill_api.v1alpha1.shared import Model, Volume
from draftmill_operator.render.metadata import Manifest

MODELS: Final = "models"
DATA: Final = "data"
INPUT: Final = "input"
HUGGING_FACE_FOLDER: Final = "huggingface"
"""Folder below the models volume that downloaded models go to."""


def pod_volume(name: str, volume: Volume) -> Manifest:
    """The volume as a pod names it."""
    return {"name": name} | volume.to_json()


def mount(name: str, path: str, *, read_only: bool) -> Manifest:
    """A mount of a volume."""
    return {"name": name, "mountPath": path} | ({"readOnly": True} if read_only else {})


def model_path(model: Model) -> str:
    """The model's folder inside every pod of the run."""
    if model.hugging_face is None:
        return f"{api_names.MODELS_MOUNT}/{model.path}"
    revision = re.sub(r"[^A-Za-z0-9._-]", "_", model.hugging_face.revision)
    repo = model.hugging_face.repo.replace("/", "--")
    return f"{api_names.MODELS_MOUNT}/{HUGGING_FACE_FOLDER}/{repo}/{revision}"


def data_path(path: str) -> str:
    """A path below the data volume, inside the job pods."""
    return f"{api_names.DATA_MOUNT}/{path}"


def below_data(path: str) -> str:
    """A path inside the job pods, seen from the root of the data volume."""
    return path.removeprefix(f"{api_names.DATA_MOUNT}/")


def each_claim_once(pod: Manifest) -> Manifest:
    """The pod's spec with one volume for each claim, mounted wherever one of its volumes was.

    The kubelet sets up a claim for one volume of a pod: a second volume of the same claim never becomes
    ready, and the pod waits for it without an end. Models and data on one claim are usual.
    """
    twins = defaultdict[str, list[Manifest]](list)
    for volume in pod["volumes"]:
        if claim := volume.get("persistentVolumeClaim"):
            twins[claim["claimName"]].append(volume)
    kept, mounts = dict[str, Manifest](), dict[str, Manifest]()  # by the volume's name
    for first, *others in twins.values():
        writable = [volume for volume in (first, *others) if not _is_read_only(volume)]
        kept[first["name"]] = {**(writable or [first])[0], "name": first["name"]}
        for volume in (first, *others):
            read_only = {"readOnly": True} if _is_read_only(volume) else {}
            mounts[volume["name"]] = {"name": first["name"]} | read_only
    volumes = [
        kept.get(volume["name"], volume)
        for volume in pod["volumes"]
        if "persistentVolumeClaim" not in volume or volume["name"] in kept
    ]
    containers = {
        kind: [_mounting(container, mounts) for container in pod[kind]]
        for kind in ("initContainers", "containers")
        if kind in pod
    }
    return pod | containers | {"volumes": volumes}


def _is_read_only(volume: Manifest) -> bool:
    return bool(volume["persistentVolumeClaim"].get("readOnly"))


def _mounting(container: Manifest, instead: dict[str, Manifest]) -> Manifest:
    mounts = [one | instead.get(one["name"], {}) for one in container["volumeMounts"]]
    return container | {"volumeMounts": mounts}
