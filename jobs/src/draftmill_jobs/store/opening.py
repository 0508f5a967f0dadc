"""Taking over a worker's part of a store: whose the store is, and what others left in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from draftmill_api.jobconfig import JobRun
from draftmill_api.store import StoreBinding, StoreFolder, StoreLine
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.shared.lock import (
    FolderInUseError,
    Holder,
    LockHeldError,
    PartLock,
    parts_with_locks,
    this_process,
)
from draftmill_jobs.shared.settings import Share
from draftmill_jobs.store.folder import (
    STORE_FILE,
    check_same,
    index_part,
    index_parts,
    read_store_file,
    worker_part,
    workers_seen,
    write_store_file,
)
from draftmill_jobs.store.lines import iterate_lines
from draftmill_jobs.store.places import RowPlaces
from draftmill_jobs.store.recovery import Recovered, recover, seal


@dataclass(frozen=True, slots=True)
class Opened:
    """A worker's part, locked and made right, and every row that is there.

    Attributes:
        lock: Of the part.
        part: The part.
        places: Of the rows of its open shard and of all workers' sealed shards.
    """

    lock: PartLock
    part: Recovered
    places: RowPlaces


def take_over(folder: Path, binding: StoreBinding, *, run: JobRun, share: Share) -> Opened:
    """Locks this worker's part of the store, and makes right what it left there before.

    Workers do so one after another. Rows change hands when the number of workers does, so the first worker
    after that seals what all have left open, itself among them.

    Raises:
        JobRefusedError: The store is bound to something else, contradicts itself, or cannot be written.
        FolderInUseError: Another process is writing there.
    """
    me = this_process(run, share.count)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder, me):
            before = read_store_file(folder)
            if before is not None:
                check_same(folder, before.binding, binding)
            lock = _lock(folder, share.index, me)
            try:
                now = StoreFolder(binding=binding, workers=share.count, run=run)
                part = _bind(folder, before, now, share.index, me)
                return Opened(lock, part, _places(folder, part))
            except BaseException:
                lock.release()
                raise
    except PermissionError as error:
        raise JobRefusedError("StorageNotWritable", f"cannot write to {folder}: {error}") from error


def _bind(folder: Path, before: StoreFolder | None, now: StoreFolder, own: int, me: Holder) -> Recovered:
    """Makes right this worker's part, and those that no other worker looks after.

    Where the rows have changed hands, that is every part, and no shard stays open, for others would not see
    its rows. `store.json` says so only afterwards: whoever dies before leaves all of it to the next.
    """
    split_changed = before is not None and before.workers != now.workers
    for worker in sorted(_others(folder, own)):
        is_nobodys = split_changed or worker >= now.workers
        _look_after(folder, worker, now.binding, me, is_nobodys=is_nobodys)
    part = recover(folder, own, now.binding)
    if split_changed and part.open:
        seal(part.open, index_part(folder, own))
        part = Recovered(None, part.next_number)
    if before != now:
        write_store_file(folder, now)
    return part


@contextmanager
def _alone(folder: Path, me: Holder) -> Iterator[None]:
    try:
        lock = PartLock(folder / STORE_FILE, me)
    except LockHeldError as held:
        is_passing = held.holder is not None and held.holder.shares_with(me)
        raise FolderInUseError(folder, held.holder, me, is_passing=is_passing) from held
    try:
        yield
    finally:
        lock.release()


def _lock(folder: Path, worker: int, me: Holder) -> PartLock:
    try:
        return PartLock(worker_part(folder, worker), me)
    except LockHeldError as held:
        raise FolderInUseError(folder, held.holder, me) from held


def _others(folder: Path, own: int) -> set[int]:
    stem = worker_part(folder, 0).name[:-1]
    locked = {int(part.name.removeprefix(stem)) for part in parts_with_locks(folder, stem)}
    return (workers_seen(folder) | locked) - {own}


def _look_after(folder: Path, worker: int, binding: StoreBinding, me: Holder, *, is_nobodys: bool) -> None:
    """Refuses when a stranger is at work; makes right, and seals, what nobody else goes on with."""
    try:
        lock = _lock(folder, worker, me)
    except FolderInUseError as error:
        if isinstance(held := error.__cause__, LockHeldError) and held.holder and held.holder.shares_with(me):
            return  # and looks after its part itself
        raise
    try:
        if is_nobodys:
            left = recover(folder, worker, binding)
            if left.open:
                seal(left.open, index_part(folder, worker))
    finally:
        lock.release()


def _places(folder: Path, part: Recovered) -> RowPlaces:
    places = RowPlaces()
    for index in index_parts(folder):
        for row, _ in iterate_lines(index, StoreLine):
            places.add(row)
    for row in part.open.rows if part.open else ():
        places.add(row)
    return places
