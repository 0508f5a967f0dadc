"""`concurrency.json`: what `concurrency: Auto` settled on last, and why, for the accounts of the run."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from draftmill_api.v1alpha1.status import ChosenConcurrency
from draftmill_jobs.shared.artefacts import read_json, write_json
from draftmill_jobs.shared.storage import write_failure

CONCURRENCY_FILE: Final = "concurrency.json"


def note_chosen(output: Path, chosen: ChosenConcurrency) -> None:
    """Writes down what was found, in place of what was found before.

    Raises:
        JobError: The disk does not take it.
        StorageFullError: There is no room for it.
    """
    path = output / CONCURRENCY_FILE
    try:
        write_json(path, chosen)
    except OSError as error:
        raise write_failure(path, error) from error


def read_chosen(output: Path) -> ChosenConcurrency | None:
    """What was found last; None when nothing was.

    Raises:
        JobRefusedError: The file is not one of ours.
    """
    return read_json(output / CONCURRENCY_FILE, ChosenConcurrency, "does not say what Auto has found")
