"""Which folder a run's answers belong to: `output.path`, or with `onChange: NewFolder` one beside it.

One beside it is named after what its answers are asked with: `<output.path>@<fingerprint>`. Every step and
every worker of a run comes to the same one, for the folders tell whose they are, from the first step on.
"""

from __future__ import annotations

import hashlib
import logging
import re
import time
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

from draftmill_api.jobconfig import JobRun, SynthJobConfig
from draftmill_api.manifest import RunFingerprint
from draftmill_api.names import DATA_MOUNT
from draftmill_api.record import canonical_json
from draftmill_api.v1alpha1.synthrun import OnChange
from draftmill_jobs.errors import JobFailedError, JobRefusedError
from draftmill_jobs.model.facts import TargetModel
from draftmill_jobs.output.fitting import Fit, check_fit
from draftmill_jobs.prompts.index import PromptIndex, read_prompts
from draftmill_jobs.shared.folder import (
    RUN_FILE,
    OtherAnswersError,
    fingerprint_of,
    read_fingerprint,
    write_fingerprint,
)
from draftmill_jobs.shared.lock import LockHeldError, PartLock, this_process
from draftmill_jobs.shared.settings import DatasetSettings, datasets_of
from draftmill_jobs.shared.storage import refused_at_start, write_failure

log = logging.getLogger(__name__)

_LONGEST_WAIT: Final = 30.0  # seconds for the lock that is held while a folder is bound
_LOOKS_AGAIN: Final = 0.02  # seconds

_BESIDE: Final = "@[0-9a-f]{16}(-[0-9]+)?"
"""What stands behind the name of `output.path` in that of a folder beside it."""


def own_output(config: SynthJobConfig, model: TargetModel) -> SynthJobConfig:
    """The config with the folder that its answers belong to, which with NewFolder is bound to what is asked.

    Raises:
        JobError: The folder cannot be written, or one beside it is no place to be.
        StorageFullError: There is no room for what is written at the start.
    """
    while True:
        found = find_output(config, model)
        if config.output.on_change is OnChange.REFUSE or _bind(found, model):
            break
    if found.output.path != config.output.path:
        log.info("%s holds other answers; those of this run go to %s", config.output.path, found.output.path)
    return found


def find_output(config: SynthJobConfig, model: TargetModel) -> SynthJobConfig:
    """The config with the folder that its answers belong to, as it is now; nothing is written."""
    if config.output.on_change is OnChange.REFUSE:
        return config
    base = Path(config.output.path)
    if base == Path(DATA_MOUNT):
        raise JobRefusedError(
            "ConfigurationInvalid",
            "output.path is the root of the data volume, beside which there is no place for another folder: "
            "name a folder in it, or set output.onChange to Refuse",
        )
    return _at(_choose(config, model, base), config)


def _at(root: Path, config: SynthJobConfig) -> SynthJobConfig:
    output = config.output.model_copy(update={"path": str(root), "on_change": OnChange.REFUSE})
    return config.model_copy(update={"output": output})


def _choose(config: SynthJobConfig, model: TargetModel, base: Path) -> Path:
    """The first folder with answers to what is asked and no others; else the first that has none at all.

    Or none did when it was looked at before: another worker may have begun it since.
    """
    known = defaultdict[str, list[PromptIndex]](list)

    def fit(root: Path) -> Fit | None:
        return _fit(datasets_of(_at(root, config)), model, config.run, known)

    with_answers = (root for root in (base, *_beside(base)) if fit(root) is Fit.SAME)
    free_or_just_begun = (root for root in _names(base, _asked(config, model)) if fit(root) is not None)
    return next(with_answers, None) or next(free_or_just_begun)


def _fit(
    datasets: list[DatasetSettings], model: TargetModel, run: JobRun, known: dict[str, list[PromptIndex]]
) -> Fit | None:
    """What a folder is to all datasets together; None where it is bound to something else for one of them.

    Args:
        datasets: The datasets, if the folder were theirs.
        model: The model.
        run: The run.
        known: The prompts of each, as they were found; what is read here is added.
    """

    def prompts(dataset: DatasetSettings, before: PromptIndex) -> PromptIndex:
        found = read_prompts(dataset, [before, *known[dataset.name]])
        known[dataset.name].append(found)
        return found

    try:
        fits = {
            check_fit(dataset, fingerprint_of(dataset, model, run), partial(prompts, dataset))
            for dataset in datasets
        }
    except OtherAnswersError:
        return None
    if Fit.UNUSED in fits:
        return None  # whose it is may begin at any moment
    return Fit.SAME if Fit.SAME in fits else Fit.FREE


def _beside(base: Path) -> list[Path]:
    """The folders beside it that runs have begun, by name."""
    is_ours = re.compile(re.escape(base.name) + _BESIDE)
    try:
        return sorted(
            path for path in base.parent.iterdir() if is_ours.fullmatch(path.name) and path.is_dir()
        )
    except FileNotFoundError:
        return []
    except OSError as error:
        raise JobFailedError(
            "StorageFailed",
            f"cannot look for folders beside {base}: {error.strerror}; look at the volume",
        ) from error


def _names(base: Path, asked: str) -> Iterator[Path]:
    """The folders that a run may begin: a number is needed only for other prompts that are asked likewise."""
    yield base
    yield base.with_name(f"{base.name}@{asked}")
    for number in count(2):
        yield base.with_name(f"{base.name}@{asked}-{number}")


def _asked(config: SynthJobConfig, model: TargetModel) -> str:
    """The fingerprint of `run.json`, if all datasets are asked alike; else one of all of theirs together."""
    of_datasets = {fingerprint_of(dataset, model, config.run).fingerprint for dataset in datasets_of(config)}
    if len(of_datasets) == 1:
        return of_datasets.pop()
    return hashlib.sha256(canonical_json(sorted(of_datasets))).hexdigest()[:16]


def _bind(config: SynthJobConfig, model: TargetModel) -> bool:
    """Binds the folder to what is asked; False when another run was quicker."""
    for dataset in datasets_of(config):
        try:
            dataset.folder.mkdir(parents=True, exist_ok=True)
            if not _bind_dataset(dataset.folder, fingerprint_of(dataset, model, config.run)):
                return False
        except OSError as error:
            raise refused_at_start(write_failure(dataset.folder, error)) from error
    return True


def _bind_dataset(folder: Path, asked: RunFingerprint) -> bool:
    if read_fingerprint(folder) is None:
        lock = _lock(folder, asked)
        try:
            if read_fingerprint(folder) is None:
                write_fingerprint(folder, asked)
        finally:
            lock.release()
    bound = read_fingerprint(folder)
    return bound is not None and bound.fingerprint == asked.fingerprint


def _lock(folder: Path, asked: RunFingerprint) -> PartLock:
    """Locks whose a folder is, for a moment; who has it longer is dead, and a volume still keeps its lock.

    It looks again and again, for `flock` knows no time limit.
    """
    end = time.monotonic() + _LONGEST_WAIT
    while True:
        try:
            return PartLock(folder / RUN_FILE, this_process(asked.run, 0))
        except LockHeldError as held:
            if time.monotonic() > end:
                raise JobFailedError(
                    "FolderInUse",
                    f"{folder} was locked for {_LONGEST_WAIT:g} s by {held.holder or 'another process'}; "
                    "if that is gone, the volume's server still keeps its lock: have it released there",
                ) from held
        time.sleep(_LOOKS_AGAIN)
