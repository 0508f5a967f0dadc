"""`run.json`: what a dataset's folder was asked with, so that different answers are never mixed."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from draftmill_api.jobconfig import JobRun
from draftmill_api.manifest import RunFingerprint
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.model.facts import TargetModel
from draftmill_jobs.shared.files import write_atomically
from draftmill_jobs.shared.settings import DatasetSettings, sampling_facts

RUN_FILE = "run.json"


def fingerprint_of(dataset: DatasetSettings, model: TargetModel, run: JobRun) -> RunFingerprint:
    """What this dataset is asked with now."""
    return RunFingerprint(
        model=model.facts,
        sampling=sampling_facts(dataset.sampling),
        chat_template_kwargs=dataset.chat_template_kwargs,
        turns=dataset.turns,
        run=run,
    )


def read_fingerprint(folder: Path) -> RunFingerprint | None:
    """What the folder was asked with before; None when it is new.

    Raises:
        JobRefusedError: `run.json` is not ours.
    """
    path = folder / RUN_FILE
    if not path.exists():
        return None
    try:
        return RunFingerprint.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise JobRefusedError("OutputCorrupt", f"{path} is not a run.json of Draftmill: {error}") from error


def write_fingerprint(folder: Path, fingerprint: RunFingerprint) -> None:
    """Binds the folder to what it is asked with."""
    content = fingerprint.model_dump_json(by_alias=True, exclude_none=True, indent=2)
    write_atomically(folder / RUN_FILE, content.encode() + b"\n")


def check_same(folder: Path, before: RunFingerprint, now: RunFingerprint) -> None:
    """Refuses to mix answers.

    Raises:
        JobRefusedError: The folder holds answers of another model, sampling or template.
    """
    pairs = {
        "model": (before.model.fingerprint, now.model.fingerprint),
        "sampling": (before.sampling, now.sampling),
        "chatTemplateKwargs": (before.chat_template_kwargs, now.chat_template_kwargs),
        "turns": (before.turns, now.turns),
    }
    for what, (old, new) in pairs.items():
        if old != new:
            raise JobRefusedError(
                "OutputFolderDiffers",
                f"{folder} holds answers with another {what}: {old} there, {new} now; "
                "choose another output.path",
            )
