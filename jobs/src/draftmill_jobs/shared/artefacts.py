"""The files that a finish step leaves: `summary.json` and `manifest.json`."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from draftmill_api.base import ApiModel
from draftmill_api.names import DATA_MOUNT
from draftmill_jobs.shared.files import write_atomically

SUMMARY_FILE: Final = "summary.json"
MANIFEST_FILE: Final = "manifest.json"


def write_json(path: Path, content: ApiModel) -> str:
    """Writes JSON for people and programs; returns its sha256."""
    data = content.model_dump_json(by_alias=True, indent=2).encode() + b"\n"
    write_atomically(path, data)
    return hashlib.sha256(data).hexdigest()


def below_volume(path: Path) -> str:
    """In a pod the path on the data volume, elsewhere the path itself."""
    return str(path.relative_to(DATA_MOUNT)) if path.is_relative_to(DATA_MOUNT) else str(path)
