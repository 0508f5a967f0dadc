"""The JSON files of an output folder: `summary.json`, `manifest.json`, and what steps tell each other."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError

from draftmill_api.base import ApiModel
from draftmill_api.names import DATA_MOUNT
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.shared.files import write_atomically

SUMMARY_FILE: Final = "summary.json"
MANIFEST_FILE: Final = "manifest.json"

Model = TypeVar("Model", bound=BaseModel)


def write_json(path: Path, content: ApiModel) -> str:
    """Writes JSON for people and programs; returns its sha256."""
    data = content.model_dump_json(by_alias=True, indent=2).encode() + b"\n"
    write_atomically(path, data)
    return hashlib.sha256(data).hexdigest()


def read_json(path: Path, kind: type[Model], not_ours: str) -> Model | None:
    """What an earlier step wrote; None when there is no such file.

    Args:
        path: Of the file.
        kind: What it holds.
        not_ours: What is wrong when it holds something else, to be read behind the path.

    Raises:
        JobRefusedError: It holds something else.
    """
    try:
        return kind.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise JobRefusedError("OutputCorrupt", f"{path} {not_ours}: {error}") from error


def below_volume(path: Path) -> str:
    """In a pod the path on the data volume, elsewhere the path itself."""
    return str(path.relative_to(DATA_MOUNT)) if path.is_relative_to(DATA_MOUNT) else str(path)
