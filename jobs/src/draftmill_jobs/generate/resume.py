"""Going on where the files end: reading every settled row of a dataset's folder."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from draftmill_api.jobconfig import JobRun
from draftmill_api.record import RecordStatus
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.generate.binding import take_over
from draftmill_jobs.model.facts import TargetModel
from draftmill_jobs.prompts.rows import RowTable, owns, read_rows
from draftmill_jobs.shared.left_out import forget_left_out
from draftmill_jobs.shared.lock import PartLock
from draftmill_jobs.shared.parts import DEAD_LETTERS, RECORDS, file_of, part_path, part_paths, read_lines
from draftmill_jobs.shared.settings import DatasetSettings, Share, sampling_facts
from draftmill_jobs.shared.tally import FailureTally, Tally


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
    lock = take_over(settings, model=model, run=run, share=share)
    try:
        return _read(settings, total, lock=lock, share=share, failures=failures)
    except BaseException:
        lock.release()
        raise


def _read(
    settings: DatasetSettings, total: int, *, lock: PartLock, share: Share, failures: FailureTally
) -> OpenDataset:
    folder = settings.folder
    forget_left_out(folder, share)
    tally, table = Tally(settings.name, total), RowTable()
    for path in part_paths(folder, RECORDS):
        _read_records(path, tally, table, share)
    for path in part_paths(folder, DEAD_LETTERS):
        _read_dead_letters(path, tally, table, failures, share)
    records = file_of(part_path(folder, RECORDS, share), settings.compression)
    letters = part_path(folder, DEAD_LETTERS, share)
    dataset = OpenDataset(settings, tally, table, records, letters, lock, share)
    if settings.max_tokens is not None and tally.done + tally.errors:
        _leave_out_strangers_first(dataset)
    return dataset


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
