"""The names in a store's folder, and what it is bound to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from draftmill_api.store import StoreBinding, StoreFolder
from draftmill_jobs.shared.files import write_atomically
from draftmill_jobs.store.errors import StoreCorruptError, StoreDiffersError

STORE_FILE: Final = "store.json"
INDEX_FILE: Final = "index.jsonl"
MANIFEST_FILE: Final = "manifest.json"
_SHARD = re.compile(r"states-w([0-9]+)-([0-9]+)\.(safetensors|safetensors\.partial|journal)")
_INDEX = re.compile(r"index-w([0-9]+)\.jsonl")


def worker_part(folder: Path, worker: int) -> Path:
    """What a worker's files and its lock are named after."""
    return folder / f"states-w{worker}"


def shard_path(folder: Path, worker: int, number: int) -> Path:
    """A worker's n-th shard."""
    return folder / f"states-w{worker}-{number}.safetensors"


def shard_numbers(folder: Path, worker: int) -> list[int]:
    """The numbers of a worker's shards, sealed or open, ascending."""
    matches = (_SHARD.fullmatch(path.name) for path in folder.iterdir())
    return sorted({int(match[2]) for match in matches if match and int(match[1]) == worker})


def index_part(folder: Path, worker: int) -> Path:
    """The index of the shards that a worker has sealed."""
    return folder / f"index-w{worker}.jsonl"


def index_parts(folder: Path) -> list[Path]:
    """The indexes of all workers."""
    found = [(int(match[1]), path) for path in folder.iterdir() if (match := _INDEX.fullmatch(path.name))]
    return [path for _, path in sorted(found)]


def workers_seen(folder: Path) -> set[int]:
    """Every worker that has left a file here."""
    names = [path.name for path in folder.iterdir()]
    matches = [_SHARD.fullmatch(name) or _INDEX.fullmatch(name) for name in names]
    return {int(match[1]) for match in matches if match}


def journals(folder: Path) -> list[Path]:
    """The journals of all shards that are open, or were when a worker died."""
    return sorted(folder.glob("states-w*-*.journal"))


def sealed_shards(folder: Path) -> set[str]:
    """The names of the shards that are whole files."""
    return {path.name for path in folder.glob("states-w*-*.safetensors")}


def read_store_file(folder: Path) -> StoreFolder | None:
    """What the folder is bound to; None when it is new.

    Raises:
        StoreCorruptError: `store.json` is not ours.
    """
    path = folder / STORE_FILE
    if not path.exists():
        return None
    try:
        return StoreFolder.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise StoreCorruptError(f"{path} is not the store.json of this version: {error}") from error


def write_store_file(folder: Path, store: StoreFolder) -> None:
    """Binds the folder."""
    content = store.model_dump_json(by_alias=True, exclude_none=True, indent=2)
    write_atomically(folder / STORE_FILE, content.encode() + b"\n")


def check_same(folder: Path, before: StoreBinding, now: StoreBinding) -> None:
    """Refuses to mix states. What is not known of either is not compared.

    Raises:
        StoreDiffersError: The store holds states of something else; the message has both values.
    """
    old, new = before.model_dump(mode="json", by_alias=True), now.model_dump(mode="json", by_alias=True)
    unknown = {"backend"} if before.backend is None or now.backend is None else set()
    for what in old:
        if what not in unknown and old[what] != new[what]:
            raise StoreDiffersError(
                f"{folder} holds states with another {what}: {old[what]} there, {new[what]} now"
            )
