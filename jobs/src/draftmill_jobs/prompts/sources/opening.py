"""From what the config says about a source to its rows."""

from __future__ import annotations

from pathlib import Path

from draftmill_api.jobconfig import JobSource
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.prompts.sources.base import Source
from draftmill_jobs.prompts.sources.files import open_file
from draftmill_jobs.prompts.sources.pinning import open_dataset
from draftmill_jobs.prompts.sources.together import FilesSource, find_files


def open_source(source: JobSource, folder: Path) -> Source:
    """Chooses the reader.

    Args:
        source: What the config says.
        folder: Where answers go, and where the commit of a dataset of the hub is kept.

    Raises:
        JobRefusedError: The source is not there, or cannot be read.
        JobFailedError: The hub does not answer.
    """
    if source.hugging_face is not None:
        return open_dataset(source.hugging_face, folder)
    if source.folder is not None:
        return FilesSource(find_files(Path(source.folder.path), source.folder.pattern))
    assert source.file is not None  # noqa: S101 - exactly one of the three, says the type
    path = Path(source.file.path)
    if not path.is_file():
        raise JobRefusedError("PromptsNotFound", f"there is no file of prompts at {path}")
    return open_file(path)
