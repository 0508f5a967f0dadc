"""The run's volumes as pod volumes, and where a run's paths lie inside its pods."""

from __future__ import annotations

import re
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
