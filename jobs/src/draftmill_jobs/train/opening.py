"""The store and the target that a job's config names, compared with each other before anything is read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from draftmill_api.store import StoreManifest
from draftmill_api.trainjob import TrainJobConfig
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.model.fingerprint import fingerprint
from draftmill_jobs.shared.artefacts import MANIFEST_FILE
from draftmill_jobs.shared.files import sha256_of
from draftmill_jobs.store.errors import StoreCorruptError
from draftmill_jobs.store.folder import check_same
from draftmill_jobs.store.reader import Check, Store, read_manifest
from draftmill_jobs.train.store_rows import StoreRows


@dataclass(frozen=True, eq=False)
class Opened:
    """A complete store, of the target that is trained for.

    Attributes:
        manifest_sha256: Hash of the manifest's file.
        store: Open.
    """

    folder: Path
    manifest: StoreManifest
    manifest_sha256: str
    store: Store
    rows: StoreRows


def open_input(config: TrainJobConfig) -> Opened:
    """Opens the store; its rows are checked as they are read.

    Raises:
        JobRefusedError: It is not there, not complete, another one than the run is bound to, or of another
            target.
    """
    wanted, folder = config.store, Path(config.store.path)
    path = Path(wanted.manifest) if wanted.manifest is not None else folder / MANIFEST_FILE
    if not path.is_file():
        raise JobRefusedError(
            "InputIncomplete",
            f"{path} is not there: {folder} is no store, or its extraction has not been finished; run "
            "`draftmill finish` for it, or check from",
        )
    digest = sha256_of(path)
    if wanted.manifest_sha256 not in (None, digest):
        raise JobRefusedError(
            "InputChanged",
            f"{path} has the hash {digest}, and the run is bound to {wanted.manifest_sha256}: the store was "
            "made anew since; delete the run and create it again",
        )
    manifest = _manifest(path, folder)
    _check_target(config, manifest)
    store = Store.open(folder, check=Check.HEADERS)
    check_same(folder, store.binding, manifest.binding)
    if len(store) != manifest.rows:
        raise StoreCorruptError(f"{folder} has {len(store)} rows, and its manifest names {manifest.rows}")
    return Opened(folder, manifest, digest, store, StoreRows(store, config.training.max_row_tokens))


def _manifest(path: Path, folder: Path) -> StoreManifest:
    manifest = read_manifest(path.parent)
    if manifest is None or path.parent != folder:
        raise JobRefusedError(
            "InputNotUsable", f"{path} is not the {MANIFEST_FILE} of the store in {folder}; check from"
        )
    return manifest


def _check_target(config: TrainJobConfig, manifest: StoreManifest) -> None:
    stored = manifest.model.fingerprint
    if config.store.model_fingerprint not in (None, stored):
        raise JobRefusedError(
            "ModelMismatch",
            f"the states are of the model {stored}, and the run is bound to {config.store.model_fingerprint}",
        )
    folder = Path(config.target.path)
    if not (folder / "config.json").is_file():
        raise JobRefusedError(
            "ModelNotFound", f"there is no model at {folder}: config.json is missing; check target.path"
        )
    if (found := fingerprint(folder)) != stored:
        raise JobRefusedError(
            "ModelMismatch",
            f"{folder} has the fingerprint {found}, and the states in {config.store.path} are of "
            f"{manifest.model_name} with {stored}: train with the model that they were extracted from",
        )
