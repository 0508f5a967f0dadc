"""The second, independent look at a store: every byte is read, every figure counted anew."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from draftmill_api.manifest import PartFile
from draftmill_api.store import ComputedIn, Float8Error, StoreLine, StoreManifest, StoreShard
from draftmill_jobs.shared.files import sha256_of
from draftmill_jobs.store.errors import StoreCorruptError
from draftmill_jobs.store.folder import INDEX_FILE, MANIFEST_FILE, index_parts, read_store_file, sealed_shards
from draftmill_jobs.store.index import doubles, rows_of
from draftmill_jobs.store.layout import StateLayout
from draftmill_jobs.store.reader import read_manifest
from draftmill_jobs.store.verify import by_shard, hash_faults, header_faults


@dataclass(frozen=True, slots=True)
class StoreAudit:
    """What is in a store.

    Attributes:
        faults: What is wrong, naming shard and row; empty when all is well.
        shards: With their hashes; none when only headers were looked at.
        index: `index.jsonl`; None while it is not merged.
    """

    faults: list[str]
    rows: list[StoreLine]
    shards: list[StoreShard]
    index: PartFile | None

    @property
    def tokens(self) -> int:
        """Of all rows."""
        return sum(row.tokens for row in self.rows)

    @property
    def bytes(self) -> int:
        """Of all shards."""
        return sum(shard.bytes for shard in self.shards)

    @property
    def float8_error(self) -> Float8Error | None:
        """Over all (token, layer) of a Float8 store."""
        errors = [(row.float8_error, row.tokens) for row in self.rows if row.float8_error]
        if not errors:
            return None
        mean = sum(error.mean * tokens for error, tokens in errors) / sum(tokens for _, tokens in errors)
        return Float8Error(mean=mean, worst=max(error.worst for error, _ in errors))

    @property
    def computed_in(self) -> dict[ComputedIn, int]:
        """Rows by the dtype that their states came in, where that is known."""
        return dict(sorted(Counter(row.computed_in for row in self.rows if row.computed_in).items()))


def audit_store(folder: Path, *, only_headers: bool = False, threads: int = 4) -> StoreAudit:
    """Looks at everything in a store, and at whether it is still what its manifest says.

    Args:
        folder: Of the store.
        only_headers: Read no states: no hash is looked at.
        threads: How many shards are read at once.

    Raises:
        StoreCorruptError: It is no store, or its index or manifest cannot be read.
    """
    audit = count_store(folder, only_headers=only_headers, threads=threads)
    if (manifest := read_manifest(folder)) is not None:
        audit.faults.extend(differences(manifest, audit))
    return audit


def count_store(folder: Path, *, only_headers: bool = False, threads: int = 4) -> StoreAudit:
    """The same, whatever a manifest says; arguments as of `audit_store`.

    Raises:
        StoreCorruptError: It is no store, or its index cannot be read.
    """
    bound = read_store_file(folder)
    if bound is None:
        raise StoreCorruptError(f"there is no store in {folder}")
    layout, whole = StateLayout.of(bound.binding), folder / INDEX_FILE
    rows = rows_of([whole] if whole.exists() else index_parts(folder), folder)
    faults = [*doubles(rows), *_strangers(folder, rows), *_differences_of_parts(folder, rows)]

    def look(shard: tuple[str, list[StoreLine]]) -> tuple[list[str], StoreShard | None]:
        return _look_at(folder / shard[0], shard[1], layout, only_headers=only_headers)

    with ThreadPoolExecutor(threads) as pool:
        looks = list(pool.map(look, by_shard(rows).items()))
    faults += [fault for found, _ in looks for fault in found]
    index = (
        PartFile(path=INDEX_FILE, bytes=whole.stat().st_size, records=len(rows), sha256=sha256_of(whole))
        if whole.exists()
        else None
    )
    return StoreAudit(faults, rows, [shard for _, shard in looks if shard], index)


def differences(manifest: StoreManifest, audit: StoreAudit) -> Iterator[str]:
    """In what a store is no longer the one that its manifest names."""
    if audit.index != manifest.index:
        yield f"{INDEX_FILE}: changed since {MANIFEST_FILE} was written"
    for what, stated, found in (
        ("rows", manifest.rows, len(audit.rows)),
        ("tokens", manifest.tokens, audit.tokens),
    ):
        if stated != found:
            yield f"{MANIFEST_FILE}: {what}: {stated} there, {found} in {INDEX_FILE}"
    stated_shards = {shard.path: shard for shard in manifest.shards}
    found_shards = {row.shard for row in audit.rows}
    for name in sorted(stated_shards.keys() - found_shards):
        yield f"{name}: named by {MANIFEST_FILE}, but not in {INDEX_FILE}"
    for name in sorted(found_shards - stated_shards.keys()):
        yield f"{name}: not named by {MANIFEST_FILE}"
    for shard in audit.shards:
        if shard.path in stated_shards and shard != stated_shards[shard.path]:
            yield f"{shard.path}: changed since {MANIFEST_FILE} was written"


def _look_at(
    shard: Path, rows: Sequence[StoreLine], layout: StateLayout, *, only_headers: bool
) -> tuple[list[str], StoreShard | None]:
    faults = list(header_faults(shard, rows, layout))
    if faults or only_headers:
        return faults, None
    digest = hashlib.sha256()
    faults = list(hash_faults(shard, rows, layout, seen=digest.update))
    return faults, StoreShard(
        path=shard.name,
        bytes=shard.stat().st_size,
        records=len(rows),
        tokens=sum(row.tokens for row in rows),
        sha256=digest.hexdigest(),
    )


def _strangers(folder: Path, rows: Sequence[StoreLine]) -> Iterator[str]:
    for name in sorted(sealed_shards(folder) - {row.shard for row in rows}):
        yield f"{name}: not in the index"


def _differences_of_parts(folder: Path, rows: Sequence[StoreLine]) -> Iterator[str]:
    if not (folder / INDEX_FILE).exists() or not (parts := index_parts(folder)):
        return
    merged = {row.key: row for row in rows_of(parts, folder)}
    whole = {row.key: row for row in rows}
    for key in sorted(key for key in merged.keys() | whole.keys() if merged.get(key) != whole.get(key)):
        there = merged.get(key) or whole[key]
        yield f"{there.shard}: row {'/'.join(key)} differs between {INDEX_FILE} and its worker's part of it"
