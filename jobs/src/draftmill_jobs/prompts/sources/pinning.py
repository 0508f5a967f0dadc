"""`source.json`: the commit of a hub's dataset that a folder's answers belong to.

A branch moves; answers to what it held before and after would be mixed without a word. So the first step that
opens the dataset writes down what the branch named, and all others read that.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from draftmill_api.manifest import PinnedDataset
from draftmill_api.v1alpha1.source import HuggingFaceDataset
from draftmill_jobs.prompts.sources.base import Source
from draftmill_jobs.prompts.sources.hub import load_and_pin, load_pinned
from draftmill_jobs.shared.artefacts import read_json
from draftmill_jobs.shared.files import create_atomically, write_atomically

log = logging.getLogger(__name__)

SOURCE_FILE: Final = "source.json"


def open_dataset(wanted: HuggingFaceDataset, folder: Path) -> Source:
    """The rows at the commit that is written down, which is that of today when nothing is.

    Raises:
        JobRefusedError: There are no such rows, or only those of another commit.
        JobFailedError: The hub does not answer.
    """
    before = read_pin(folder)
    if before is not None and before.is_of(wanted):
        return load_pinned(wanted, before)
    source, pin = load_and_pin(wanted)
    if pin is None:
        return source
    folder.mkdir(parents=True, exist_ok=True)
    path, content = folder / SOURCE_FILE, pin.model_dump_json(by_alias=True, indent=2).encode() + b"\n"
    log.info("%s of %s is commit %s", wanted.revision or "the default branch", wanted.repo, pin.commit)
    if before is not None:
        write_atomically(path, content)
    elif not create_atomically(path, content):
        return open_dataset(wanted, folder)  # another worker was first: its commit counts
    return source


def read_pin(folder: Path) -> PinnedDataset | None:
    """What is written down; None when nothing is.

    Raises:
        JobRefusedError: The file is not one of ours.
    """
    not_ours = "does not say which commit of a dataset was read"
    return read_json(folder / SOURCE_FILE, PinnedDataset, not_ours)
