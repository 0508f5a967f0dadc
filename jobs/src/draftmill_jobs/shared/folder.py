"""`run.json`: what a dataset's folder was asked with, so that different answers are never mixed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from draftmill_api.jobconfig import JobRun
from draftmill_api.manifest import RunFingerprint
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.model.facts import TargetModel
from draftmill_jobs.shared.artefacts import read_json
from draftmill_jobs.shared.files import write_atomically
from draftmill_jobs.shared.settings import DatasetSettings, sampling_facts

RUN_FILE = "run.json"

_NOTHING: Final = object()


class OtherAnswersError(JobRefusedError):
    """A folder has answers that those which are asked for now must not be mixed with."""


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
    return read_json(folder / RUN_FILE, RunFingerprint, "is not a run.json of Draftmill")


def write_fingerprint(folder: Path, fingerprint: RunFingerprint) -> None:
    """Binds the folder to what it is asked with."""
    content = fingerprint.model_dump_json(by_alias=True, exclude_none=True, indent=2)
    write_atomically(folder / RUN_FILE, content.encode() + b"\n")


def check_same(folder: Path, before: RunFingerprint, now: RunFingerprint) -> None:
    """Refuses to mix answers.

    Raises:
        OtherAnswersError: The folder holds answers of another model, sampling or template.
    """
    if before.fingerprint == now.fingerprint:
        return
    changes = "; ".join(_differences("", before.binding(), now.binding()))
    raise differs(folder, before.fingerprint, now.fingerprint, changes)


def differs(folder: Path, before: str, now: str, changes: str) -> OtherAnswersError:
    """What refuses to mix answers.

    Args:
        folder: Where they are.
        before: Fingerprint of what those were asked with.
        now: Fingerprint of what is asked now.
        changes: What differs, with both values.
    """
    return OtherAnswersError(
        "OutputFolderDiffers",
        f"{folder} holds other answers than are asked for, which do not mix (fingerprint {before} there, "
        f"{now} now): {changes}. Ask as before, choose another output.path, or "
        "create the run again with output.onChange: NewFolder",
    )


def _differences(path: str, before: Any, now: Any) -> Iterator[str]:
    """Each field that differs, by its dotted path, with both values."""
    if not isinstance(before, dict) or not isinstance(now, dict):
        yield f"{path} is {_shown(before)} there and {_shown(now)} now"
        return
    for name in sorted(before.keys() | now.keys()):
        old, new = before.get(name, _NOTHING), now.get(name, _NOTHING)
        if old != new:
            yield from _differences(f"{path}.{name}" if path else name, old, new)


def _shown(value: Any) -> str:
    return "not set" if value is _NOTHING else json.dumps(value, ensure_ascii=False)
