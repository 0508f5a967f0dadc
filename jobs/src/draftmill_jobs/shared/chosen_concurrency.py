"""`concurrency.json`: what `concurrency: Auto` settled on last, and why, for the accounts of the run."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pydantic import ValidationError

from draftmill_api.v1alpha1.status import ChosenConcurrency
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.shared.artefacts import write_json
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
    path = output / CONCURRENCY_FILE
    try:
        return ChosenConcurrency.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise JobRefusedError("OutputCorrupt", f"{path} does not say what Auto has found: {error}") from error
