"""The records of a finished run, each file checked against the manifest as it is read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import orjson
from pydantic import ValidationError

from draftmill_api.manifest import Manifest, PartFile
from draftmill_api.record import Record
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.shared.artefacts import MANIFEST_FILE
from draftmill_jobs.shared.lines import raw_lines


def read_finished(folder: Path, dataset: str | None = None) -> Iterator[Record]:
    """Yields every record of a run's output, or of one of its datasets.

    Raises:
        JobRefusedError: The run is not finished, has no such dataset, or a file is not what it was.
    """
    manifest = _manifest(folder)
    names = [each.name for each in manifest.datasets]
    if dataset is not None and dataset not in names:
        raise JobRefusedError(
            "InputNotFound", f"{folder} has no dataset {dataset}; it has {', '.join(names)}"
        )
    for each in manifest.datasets:
        if dataset in (None, each.name):
            for part in each.files:
                yield from _read(folder / part.path, part)


def _manifest(folder: Path) -> Manifest:
    path = folder / MANIFEST_FILE
    try:
        return Manifest.model_validate(orjson.loads(path.read_bytes()), extra="ignore")
    except FileNotFoundError as error:
        raise JobRefusedError(
            "InputNotFound", f"{folder} has no {MANIFEST_FILE}: give the output folder of a finished run"
        ) from error
    except (orjson.JSONDecodeError, ValidationError) as error:
        raise JobRefusedError("InputCorrupt", f"{path} is no manifest of a SynthRun: {error}") from error


def _read(path: Path, part: PartFile) -> Iterator[Record]:
    digest = hashlib.sha256()
    try:
        for line in raw_lines(path, digest.update):
            yield Record.model_validate(orjson.loads(line.raw))
    except FileNotFoundError as error:
        raise JobRefusedError(
            "InputNotFound", f"{path} is not there, and {MANIFEST_FILE} lists it"
        ) from error
    except (orjson.JSONDecodeError, ValidationError) as error:
        raise JobRefusedError("InputCorrupt", f"{path} holds a line that is no record: {error}") from error
    if digest.hexdigest() != part.sha256:
        raise JobRefusedError("InputCorrupt", f"{path} was changed since {MANIFEST_FILE} was written")
