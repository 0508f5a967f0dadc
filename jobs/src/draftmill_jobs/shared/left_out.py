"""`not_admitted-0-of-2.json`: how many rows a worker left out because its share of `maxTokens` was reached.

Such rows leave no line behind, and each worker has a cap of its own. So the worker says it durably, and the
finish step can tell a row that was left out from one that was lost.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from draftmill_api.base import ApiModel
from draftmill_jobs.shared.artefacts import read_json
from draftmill_jobs.shared.files import write_atomically
from draftmill_jobs.shared.settings import Share
from draftmill_jobs.shared.storage import write_failure

_STEM = "not_admitted"


class LeftOut(ApiModel):
    """What one worker left out of a dataset."""

    worker: int = Field(ge=0, description="Its index.")
    workers: int = Field(ge=1, description="How many there are.")
    rows: int = Field(ge=1)

    @property
    def share(self) -> Share:
        """The worker's share of the rows."""
        return Share(self.worker, self.workers)


def note_left_out(folder: Path, share: Share, rows: int) -> None:
    """Writes down how many rows this worker left out, at least one.

    Raises:
        JobError: The disk does not take it.
        StorageFullError: There is no room for it.
    """
    note, path = LeftOut(worker=share.index, workers=share.count, rows=rows), _path(folder, share)
    try:
        write_atomically(path, note.model_dump_json(by_alias=True).encode() + b"\n")
    except OSError as error:
        raise write_failure(path, error) from error


def forget_left_out(folder: Path, share: Share) -> None:
    """Removes what this worker said before, and what another number of workers said."""
    siblings = {_path(folder, Share(index, share.count)) for index in range(share.count)}
    for path in _paths(folder):
        if path == _path(folder, share) or path not in siblings:
            path.unlink(missing_ok=True)


def read_left_out(folder: Path) -> list[LeftOut]:
    """What all workers left out.

    Raises:
        JobRefusedError: A file is not one of ours.
    """
    notes = (read_json(path, LeftOut, "does not say what a worker left out") for path in _paths(folder))
    return [note for note in notes if note is not None]


def _path(folder: Path, share: Share) -> Path:
    return folder / f"{_STEM}-{share.index}-of-{share.count}.json"


def _paths(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{_STEM}-*.json"))
