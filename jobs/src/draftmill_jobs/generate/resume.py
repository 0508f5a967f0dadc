"""Going on where the files end: locks, torn tails, and the table of settled rows."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from draftmill_api.jobconfig import JobRun
from draftmill_api.record import RecordStatus
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.generate.lock import Holder, LockHeldError, PartLock, this_process
from draftmill_jobs.model.facts import TargetModel
from draftmill_jobs.prompts.rows import RowTable, owns, read_rows
from draftmill_jobs.shared.files import write_atomically
from draftmill_jobs.shared.folder import check_same, fingerprint_of, read_fingerprint, write_fingerprint
from draftmill_jobs.shared.left_out import forget_left_out
from draftmill_jobs.shared.parts import (
    DEAD_LETTERS,
    RECORDS,
    companion,
    part_path,
    part_paths,
    parts_of_all_workers,
    read_lines,
)
from draftmill_jobs.shared.settings import DatasetSettings, Share, sampling_facts
from draftmill_jobs.shared.tally import FailureTally, Tally


class FolderInUseError(Exception):
    """Another process is writing there; perhaps one that is about to end.

    Attributes:
        same_run: It is an earlier attempt of this run.
    """

    def __init__(self, folder: Path, holder: Holder | None, run: JobRun) -> None:
        super().__init__(f"{folder} is being written by {holder or 'another process'}")
        self.same_run = holder is not None and bool(run.uid) and holder.uid == run.uid


@dataclass(frozen=True)
class OpenDataset:
    """A dataset's folder, locked and read: what is there, and where to go on."""

    settings: DatasetSettings
    tally: Tally
    table: RowTable
    records: Path
    dead_letters: Path
    lock: PartLock
    share: Share

    @cached_property
    def sampling(self) -> dict[str, Any]:
        """Sampling as it is sent and recorded, without a sample's own seed."""
        return sampling_facts(self.settings.sampling)


def open_dataset(
    settings: DatasetSettings,
    *,
    total: int,
    model: TargetModel,
    run: JobRun,
    share: Share,
    failures: FailureTally,
) -> OpenDataset:
    """Locks the folder's part, repairs what a crash left, and reads every settled row.

    Time grows with the size of the files, memory with the number of rows (16 bytes each and a bit).

    Raises:
        JobRefusedError: The folder belongs to other answers, or cannot be written.
        FolderInUseError: Another process is writing there.
    """
    folder = settings.folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        records = part_path(folder, RECORDS, share)
        lock = _lock(records, run)
        _bind(settings, model, run, records)
    except PermissionError as error:
        raise JobRefusedError("StorageNotWritable", f"cannot write to {folder}: {error}") from error
    forget_left_out(folder, share)
    tally, table = Tally(settings.name, total), RowTable()
    for path in part_paths(folder, RECORDS):
        _read_records(path, tally, table, share)
    for path in part_paths(folder, DEAD_LETTERS):
        _read_dead_letters(path, tally, table, failures, share)
    letters = part_path(folder, DEAD_LETTERS, share)
    dataset = OpenDataset(settings, tally, table, records, letters, lock, share)
    if settings.max_tokens is not None and tally.done + tally.errors:
        _leave_out_strangers_first(dataset)
    return dataset


def _lock(records: Path, run: JobRun) -> PartLock:
    try:
        return PartLock(records, this_process(run))
    except LockHeldError as held:
        raise FolderInUseError(records.parent, held.holder, run) from held


def _bind(settings: DatasetSettings, model: TargetModel, run: JobRun, own: Path) -> None:
    """Checks that the answers there are of the same kind, repairs the parts, and signs the folder."""
    folder = settings.folder
    now = fingerprint_of(settings, model, run)
    before = read_fingerprint(folder)
    if before is not None:
        check_same(folder, before, now)
    is_new_run = before is not None and (not run.uid or before.run.uid != run.uid)
    _repair(own, forget=is_new_run)
    for records in parts_of_all_workers(folder):
        if records == own:
            continue
        try:
            lock = PartLock(records, this_process(run))
        except LockHeldError as held:
            if held.holder is not None and held.holder.uid != run.uid:
                raise FolderInUseError(folder, held.holder, run) from held
            continue  # a living worker of this run, which looks after its part itself
        _repair(records, forget=is_new_run)
        lock.release()
    if before is None or is_new_run:
        write_fingerprint(folder, now)


def _repair(records: Path, *, forget: bool) -> None:
    for path in (records, companion(records)):
        if path.exists():
            cut_torn_tail(path)
    if forget and companion(records).exists():
        _forget_passing_failures(companion(records))


def cut_torn_tail(path: Path) -> None:
    """Cuts off what a crash left behind the last whole line."""
    end = 0
    for line in read_lines(path):
        end = line.end
    if end < path.stat().st_size:
        with path.open("r+b") as file:
            file.truncate(end)
            os.fsync(file.fileno())


def _forget_passing_failures(path: Path) -> None:
    """Leaves only the dead letters of rows that can never be answered; the others are asked again."""
    with path.open("rb") as file:
        lines = list(file)
    kept = [raw for raw, line in zip(lines, read_lines(path), strict=True) if line.value["permanent"]]
    if len(kept) < len(lines):
        write_atomically(path, b"".join(kept))


def _read_records(path: Path, tally: Tally, table: RowTable, share: Share) -> None:
    for line in read_lines(path):
        value = line.value
        if not table.settle(value["id"]):
            raise JobRefusedError(
                "OutputCorrupt", f"{path}: the row {value['id']} has two records in this folder"
            )
        if owns(share, value["id"]):
            tally.add_record(
                RecordStatus(value["status"]), value["finish_reason"], value["completion_tokens"]
            )


def _read_dead_letters(
    path: Path, tally: Tally, table: RowTable, failures: FailureTally, share: Share
) -> None:
    for line in read_lines(path):
        if table.settle(line.value["id"]) and owns(share, line.value["id"]):
            tally.errors += 1
            failures.add(line.value)


def _leave_out_strangers_first(dataset: OpenDataset) -> None:
    """Reads the source ahead: tokens of rows that it no longer has are none of the cap's."""
    for row in read_rows(dataset.settings):
        dataset.table.meet(row.key)
    leave_out_strangers(dataset)
    dataset.table.begin_pass()


def leave_out_strangers(dataset: OpenDataset) -> None:
    """Takes rows out of the account that the source no longer has (a smaller limit): they stay on disk.

    Called once, when every row of the source has been met.
    """
    samples = dataset.settings.sampling.samples_per_prompt
    if not dataset.table.has_strangers(samples):
        return
    folder, tally = dataset.settings.folder, dataset.tally
    for path in part_paths(folder, RECORDS):
        for line in read_lines(path):
            value = line.value
            if owns(dataset.share, value["id"]) and not dataset.table.asks_for(value["id"], samples):
                tally.remove_record(
                    RecordStatus(value["status"]), value["finish_reason"], value["completion_tokens"]
                )
    for path in part_paths(folder, DEAD_LETTERS):
        for line in read_lines(path):
            if owns(dataset.share, line.value["id"]) and not dataset.table.asks_for(
                line.value["id"], samples
            ):
                tally.errors -= 1
