"""What a dataset's prompts were read from, for the manifest: a commit of the hub, or files by their hash."""

from __future__ import annotations

from pathlib import Path

from draftmill_api.jobconfig import JobSource
from draftmill_api.manifest import ManifestSource, SourceDataset, SourceFile
from draftmill_jobs.prompts.index import PromptIndex
from draftmill_jobs.prompts.sources.pinning import read_pin
from draftmill_jobs.prompts.sources.together import find_files
from draftmill_jobs.shared.artefacts import below_volume
from draftmill_jobs.shared.files import sha256_of
from draftmill_jobs.shared.settings import DatasetSettings


def describe_source(dataset: DatasetSettings, prompts: PromptIndex) -> ManifestSource:
    """The source of a dataset as it is now, and what was taken from it."""
    return ManifestSource(
        hugging_face=_hub_dataset(dataset),
        files=[
            SourceFile(path=below_volume(path), bytes=path.stat().st_size, sha256=sha256_of(path))
            for path in _files_of(dataset.source)
        ],
        fields=dataset.fields,
        filters=dataset.filters,
        shuffle_seed=dataset.shuffle_seed,
        max_samples=dataset.max_samples,
        rows=prompts.rows,
        filtered=prompts.filtered,
    )


def _files_of(source: JobSource) -> list[Path]:
    if source.file is not None:
        return [Path(source.file.path)]
    if source.folder is not None:
        return find_files(Path(source.folder.path), source.folder.pattern)
    return []


def _hub_dataset(dataset: DatasetSettings) -> SourceDataset | None:
    wanted, pin = dataset.source.hugging_face, read_pin(dataset.folder)
    if wanted is None:
        return None
    commit = pin.commit if pin is not None and pin.is_of(wanted) else None
    return SourceDataset(repo=wanted.repo, config=wanted.config, split=wanted.split, commit=commit)
