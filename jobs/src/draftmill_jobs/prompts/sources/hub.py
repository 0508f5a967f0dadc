"""Datasets of the Hugging Face hub, at one commit for as long as a folder of answers lives.

`datasets` takes whatever commit its cache has when the hub cannot be asked, whichever was wanted. So the
commit is asked for first, and looked at again when the rows are there.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from draftmill_api.manifest import PinnedDataset
from draftmill_api.v1alpha1.source import HuggingFaceDataset
from draftmill_jobs.errors import JobError, JobFailedError, JobRefusedError
from draftmill_jobs.prompts.sources.arrow import ArrowSource
from draftmill_jobs.prompts.sources.base import Source
from draftmill_jobs.prompts.sources.dataset import DatasetSource, map_files

log = logging.getLogger(__name__)

_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_TIMEOUT: Final = 30.0  # seconds for the hub to name a commit
_SAVED: Final = "state.json"  # stands in a folder that `Dataset.save_to_disk` wrote
_ROWS_AT_ONCE: Final = 1000  # while what was downloaded becomes Arrow files


def load_pinned(wanted: HuggingFaceDataset, pin: PinnedDataset) -> Source:
    """The rows at the pinned commit: from the files that it was loaded to, else loaded again.

    Raises:
        JobRefusedError: Only another commit can be had.
        JobFailedError: The hub did not answer.
    """
    files = [Path(file) for file in pin.files]
    if files and all(file.is_file() for file in files):
        return ArrowSource(files, _identity(wanted, pin.commit))
    dataset = _load(wanted, pin.commit)
    _check_commit(wanted, pin.commit, _commit_of(dataset))
    return _source(dataset, _files_of(dataset), _identity(wanted, pin.commit))


def load_and_pin(wanted: HuggingFaceDataset) -> tuple[Source, PinnedDataset | None]:
    """The rows at the commit that the revision names now, and what brings them back; None of a folder.

    Raises:
        JobRefusedError: The hub does not have the dataset, the revision or the split, or not for us.
        JobFailedError: The hub did not answer, and its cache does not have it.
    """
    commit = _resolve(wanted)
    dataset = _load(wanted, commit)
    loaded = _commit_of(dataset)
    _check_commit(wanted, commit, loaded)
    files = _files_of(dataset)
    if loaded is None:
        return _source(dataset, files, None), None
    pin = PinnedDataset(
        repo=wanted.repo,
        config=wanted.config,
        split=wanted.split,
        revision=wanted.revision,
        commit=loaded,
        files=files,
    )
    return _source(dataset, files, _identity(wanted, loaded)), pin


def _resolve(wanted: HuggingFaceDataset) -> str | None:
    """The commit, asked of the hub; None for a local folder, and when neither hub nor cache knows."""
    from huggingface_hub import HfApi, errors, snapshot_download  # noqa: PLC0415 - heavy, and not always needed

    if Path(wanted.repo).is_dir():
        return None
    try:
        return HfApi().dataset_info(wanted.repo, revision=wanted.revision, timeout=_TIMEOUT).sha
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError, errors.HFValidationError) as error:
        raise _not_found(wanted, error) from error
    except (errors.HTTPError, OSError) as error:  # type: ignore[attr-defined]  # of its HTTP client
        log.warning("the hub does not say what commit %s of %s is: %s", wanted.revision, wanted.repo, error)
    if wanted.revision is None or _COMMIT.fullmatch(wanted.revision):
        return wanted.revision
    try:
        folder = snapshot_download(
            wanted.repo, repo_type="dataset", revision=wanted.revision, local_files_only=True
        )
    except errors.LocalEntryNotFoundError as error:
        raise _unreachable(wanted, error) from error
    return Path(folder).name


def _load(wanted: HuggingFaceDataset, commit: str | None) -> Any:
    import datasets  # noqa: PLC0415 - heavy, and not always needed

    datasets.disable_progress_bars()
    if (Path(wanted.repo) / _SAVED).is_file():
        raise JobRefusedError(
            "PromptsNotFound",
            f"{wanted.repo} was written by save_to_disk, which is no form of a repository: write it "
            "as Parquet (Dataset.to_parquet), and give that as file or folder",
        )
    try:
        builder = datasets.load_dataset_builder(
            wanted.repo, name=wanted.config, revision=commit or wanted.revision
        )
        if getattr(builder.config, "batch_size", _ROWS_AT_ONCE) is None:  # Parquet: else whole row groups
            builder.config.batch_size = _ROWS_AT_ONCE
        with _giving_memory_back():
            builder.download_and_prepare()
        return builder.as_dataset(split=wanted.split)
    except (ConnectionError, TimeoutError) as error:
        raise _unreachable(wanted, error) from error
    except (datasets.exceptions.DatasetsError, OSError, ValueError) as error:
        raise _not_found(wanted, error) from error


@contextmanager
def _giving_memory_back() -> Iterator[None]:
    """Arrow's own pools keep what they have had: over a hundred megabytes for a million prompts."""
    import pyarrow as pa  # noqa: PLC0415 - heavy, and not always needed

    before = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(before)


def _commit_of(dataset: Any) -> str | None:
    """The commit that a dataset was loaded at, which names the folder of its files; None of a local one."""
    folders = {Path(file["filename"]).parent.name for file in dataset.cache_files}
    commits = {name for name in folders if _COMMIT.fullmatch(name)}
    return commits.pop() if len(commits) == 1 else None


def _identity(wanted: HuggingFaceDataset, commit: str) -> str:
    return f"{wanted.repo} {commit} {wanted.config} {wanted.split}"


def _source(dataset: Any, files: list[str], identity: str | None) -> Source:
    """The rows, read from their files where these hold no others."""
    if not files:
        return DatasetSource(dataset, identity)
    return ArrowSource([Path(file) for file in files], identity)


def _files_of(dataset: Any) -> list[str]:
    """The files that hold the rows and no others; none when there are no such files."""
    files = [str(file["filename"]) for file in dataset.cache_files]
    is_whole = files and len(map_files([Path(file) for file in files])) == len(dataset)
    return files if is_whole else []


def _check_commit(wanted: HuggingFaceDataset, expected: str | None, loaded: str | None) -> None:
    if expected is not None and loaded != expected:
        raise JobRefusedError(
            "PromptsChanged",
            f"dataset {wanted.repo}: the answers belong to commit {expected}, and only {loaded} can be had, "
            "from the cache; let the job reach the hub",
        )


def _not_found(wanted: HuggingFaceDataset, error: Exception) -> JobRefusedError:
    what = f"{wanted.repo}, split {wanted.split}" + (
        f", revision {wanted.revision}" if wanted.revision else ""
    )
    return JobRefusedError(
        "PromptsNotFound", f"cannot load dataset {what}, from the hub or its cache: {error}"
    )


def _unreachable(wanted: HuggingFaceDataset, error: Exception) -> JobError:
    from huggingface_hub import constants  # noqa: PLC0415 - heavy, and not always needed

    sentence = f"dataset {wanted.repo} is not in the cache"
    if constants.HF_HUB_OFFLINE:
        return JobRefusedError("PromptsNotFound", f"{sentence}, and HF_HUB_OFFLINE is set: {error}")
    return JobFailedError("HubUnreachable", f"{sentence}, and the hub does not answer: {error}")
