"""From a drafter back to the prompts, by the hashes that each manifest keeps of the one before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from pydantic import ValidationError

from draftmill_api.base import ApiModel
from draftmill_api.drafter import DrafterFile, DrafterInit, DrafterManifest
from draftmill_api.extractjob import JobRecords
from draftmill_api.jobconfig import JobRun
from draftmill_api.manifest import Manifest
from draftmill_api.names import DATA_MOUNT, INPUT_MOUNT, MODELS_MOUNT
from draftmill_api.store import StoreManifest
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.extract.records import find_files
from draftmill_jobs.shared.artefacts import MANIFEST_FILE
from draftmill_jobs.shared.files import sha256_of
from draftmill_jobs.shared.formats import byte_size

AnyManifest = TypeVar("AnyManifest", bound=ApiModel)

_MOUNTS: Final = (DATA_MOUNT, INPUT_MOUNT, MODELS_MOUNT)
_UP: Final = 3  # a drafter's folder, that of all engines, that of the run


@dataclass(frozen=True, slots=True)
class Link:
    """One artefact of the chain.

    Attributes:
        what: What it is.
        place: Where it was looked for.
        facts: What its manifest says.
        fault: Why the chain breaks here; empty when it does not.
    """

    what: str
    place: str
    facts: str
    fault: str = ""


class _BrokenError(Exception):
    """The chain ends here; the message says why."""


def trace(folder: Path, roots: Sequence[Path]) -> Iterator[Link]:
    """Yields the artefacts from a drafter to its prompts; one with a fault is the last.

    Args:
        folder: Of the drafter, of one engine's, or of its run.
        roots: Where volumes of the runs are mounted here.
    """
    what, place = "drafter", str(folder)
    try:
        home = _home(folder)
        place = str(home)
        drafter = _read(home / MANIFEST_FILE, DrafterManifest)
        _check_files(home, drafter.files)
        yield Link(what, place, _drafter_facts(drafter))
        if drafter.init is not None:
            what, place = "start", drafter.init.path
            start = _locate(drafter.init.path, home, roots)
            place = str(start)
            _check_files(start, drafter.init.files)
            yield Link(what, place, _start_facts(drafter.init))
        what, place = "hidden states", drafter.source.path
        states = _locate(drafter.source.path, home, roots)
        place = str(states)
        store = _read(states / MANIFEST_FILE, StoreManifest, sha256=drafter.source.sha256)
        _check_model(drafter.model.fingerprint, store.model.fingerprint)
        _check_store(states, store)
        yield Link(what, place, _store_facts(store))
        what, place = "answers", store.source.path
        answers = _locate(store.source.path, states, roots)
        place = str(answers)
        _check_answers(answers, store)
        yield Link(what, place, _answers_facts(answers, store))
    except _BrokenError as error:
        yield Link(what, place, "", str(error))


def _home(folder: Path) -> Path:
    """The folder with the manifest of a drafter's run."""
    for candidate in [folder.absolute(), *folder.absolute().parents][:_UP]:
        path = candidate / MANIFEST_FILE
        if path.is_file() and '"DrafterTrain"' in path.read_text():
            return candidate
    raise _BrokenError(
        f"there is no {MANIFEST_FILE} of a drafter there or above: it was not finished, or was made elsewhere"
    )


def _locate(path: str, near: Path, roots: Sequence[Path]) -> Path:
    """Where a folder is that a manifest names: as it stands, below a volume, or beside the manifest."""
    inside = next((path.removeprefix(f"{each}/") for each in _MOUNTS if path.startswith(f"{each}/")), path)
    candidates = [
        *(root / inside for root in roots if not inside.startswith("/")),
        *([Path(path)] if path.startswith("/") else []),
        *(parent / inside for parent in near.parents if not inside.startswith("/")),
    ]
    for candidate in candidates:
        if candidate.is_dir():
            return candidate
    raise _BrokenError(f"{path} is not here; say where its volume is mounted with --root")


def _read(path: Path, kind: type[AnyManifest], *, sha256: str | None = None) -> AnyManifest:
    if not path.is_file():
        raise _BrokenError(f"{path} is not there")
    if sha256 is not None and (found := sha256_of(path)) != sha256:
        raise _BrokenError(f"{path} has the sha256 {found}, and what was made of it names {sha256}")
    try:
        return kind.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise _BrokenError(f"{path} is no manifest of this version: {error}") from error


def _check_files(folder: Path, files: Sequence[DrafterFile]) -> None:
    for file in files:
        path = folder / file.path
        if not path.is_file():
            raise _BrokenError(f"{path} is not there")
        if (found := sha256_of(path)) != file.sha256:
            raise _BrokenError(f"{path} has the sha256 {found}, and the manifest names {file.sha256}")


def _check_model(later: str, earlier: str) -> None:
    if later != earlier:
        raise _BrokenError(f"it is of the model {earlier}, and what was made of it of {later}")


def _check_store(folder: Path, store: StoreManifest) -> None:
    """Its index by hash; shards by their sizes, for `draftmill store verify` reads them."""
    index = folder / store.index.path
    if not index.is_file() or sha256_of(index) != store.index.sha256:
        raise _BrokenError(f"{index} is not the one that the manifest names")
    for shard in store.shards:
        path = folder / shard.path
        if not path.is_file() or path.stat().st_size != shard.bytes:
            raise _BrokenError(f"{path} is not the shard of {shard.bytes} bytes that the manifest names")


def _check_answers(folder: Path, store: StoreManifest) -> None:
    try:
        found = find_files(JobRecords(path=str(folder.absolute())), store.model).content_hash()
    except JobRefusedError as error:
        raise _BrokenError(error.message) from error
    if found != store.source.sha256:
        raise _BrokenError(
            f"the records have the sha256 {found}, and the states name {store.source.sha256}: they were "
            "changed since"
        )


def _drafter_facts(drafter: DrafterManifest) -> str:
    measured = drafter.acceptance
    figure = f"; {measured.yardstick} {measured.length:.2f}" if measured else ""
    return (
        f"{_run(drafter.run)} for {drafter.model_name}: step {drafter.steps}, {drafter.tokens:,} tokens, "
        f"layers {drafter.layer_ids}{figure}"
    )


def _start_facts(init: DrafterInit) -> str:
    return f"{len(init.files)} files, all as they were"


def _store_facts(store: StoreManifest) -> str:
    return (
        f"{_run(store.run)} of {store.model_name}: {store.rows:,} rows, {store.tokens:,} tokens, "
        f"{byte_size(store.bytes)}, layers {store.binding.layer_ids}"
    )


def _answers_facts(folder: Path, store: StoreManifest) -> str:
    path = folder / MANIFEST_FILE
    if not path.is_file():
        return f"records of {store.model_name} without a manifest, as they were"
    answers = _read(path, Manifest)
    datasets = ", ".join(dataset.name for dataset in answers.datasets)
    return (
        f"{_run(answers.run)} of {answers.model_name}: {answers.records:,} records with their prompts, in "
        f"the datasets {datasets}"
    )


def _run(run: JobRun) -> str:
    return f"{run.kind} {run.namespace}/{run.name}" if run.namespace else f"{run.kind} {run.name}"
