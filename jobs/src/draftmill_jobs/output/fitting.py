"""Whether the answers in a dataset's folder are to what is asked now: others are never mixed with them."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from pathlib import Path

from draftmill_api.manifest import RunFingerprint
from draftmill_api.record import split_row_id
from draftmill_jobs.prompts.changes import changed_prompts
from draftmill_jobs.prompts.index import PromptIndex, load_index
from draftmill_jobs.shared.folder import RUN_FILE, OtherAnswersError, check_same, differs, read_fingerprint
from draftmill_jobs.shared.heads import read_heads
from draftmill_jobs.shared.parts import RECORDS, files_with_answers, part_paths
from draftmill_jobs.shared.settings import DatasetSettings


class Fit(Enum):
    """What a folder is to a dataset whose answers may go there."""

    FREE = "free"
    """It has no answers, and is bound to none."""
    SAME = "same"
    """It is bound to what is asked now."""
    UNUSED = "unused"
    """It is bound to something else, and has no answers: who finds nobody at work there may bind it anew."""


def check_fit(
    settings: DatasetSettings, asked: RunFingerprint, prompts: Callable[[PromptIndex], PromptIndex]
) -> Fit:
    """What the dataset's folder is to it.

    Args:
        settings: The dataset.
        asked: What it is asked with now.
        prompts: Its prompts now, given those of before; called only where there are some of before.

    Raises:
        OtherAnswersError: The folder has answers that were asked in another way, or to prompts that are gone
            from the source while others are new, or nobody can say how they were asked.
        JobRefusedError: The folder's files are not ours, or the source cannot be read.
    """
    folder = settings.folder
    bound = read_fingerprint(folder)
    if bound is None:
        _check_empty(folder)
        return Fit.FREE
    if not files_with_answers(folder):
        return Fit.SAME if bound.fingerprint == asked.fingerprint else Fit.UNUSED
    check_same(folder, bound, asked)
    before = load_index(folder)
    if before is not None:
        _check_prompts(settings, before, prompts(before))
    return Fit.SAME


def _check_empty(folder: Path) -> None:
    """Nothing of ours leaves answers without `run.json`, which is written before the first of them."""
    if found := files_with_answers(folder):
        raise OtherAnswersError(
            "OutputFolderUnbound",
            f"{found[0]} has answers, but {RUN_FILE} is not beside it, which says what they were asked with: "
            f"others would be mixed with them. Put its {RUN_FILE} back, move the files away, choose "
            "another output.path, or create the run again with output.onChange: NewFolder",
        )


def _check_prompts(settings: DatasetSettings, before: PromptIndex, now: PromptIndex) -> None:
    records = part_paths(settings.folder, RECORDS)
    answered = (split_row_id(head.id)[0] for path in records for head in read_heads(path))
    changed = changed_prompts(settings, before, now, answered)
    if changed is not None:
        raise differs(
            settings.folder,
            before.fingerprint,
            now.fingerprint,
            f"{changed.gone} prompts that were answered are gone from the source of dataset {settings.name}, "
            f"for example that of row {changed.example}, and {changed.new} are new, the first at place "
            f"{changed.place} (was their text changed?)",
        )
