"""Going on where the files end: reading every settled row of a dataset's folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

from draftmill_api.jobconfig import JobRun
from draftmill_jobs.errors import JobFailedError, JobRefusedError
from draftmill_jobs.generate.binding import take_over
from draftmill_jobs.generate.earlier_turns import EarlierTurns, read_earlier_turns
from draftmill_jobs.model.facts import TargetModel
from draftmill_jobs.prompts.index import PromptIndex
from draftmill_jobs.prompts.reading import DatasetRows
from draftmill_jobs.prompts.rows import SourceRow
from draftmill_jobs.prompts.table import RowTable, Settling
from draftmill_jobs.shared.heads import read_heads
from draftmill_jobs.shared.left_out import forget_left_out
from draftmill_jobs.shared.lock import PartLock
from draftmill_jobs.shared.parts import DEAD_LETTERS, RECORDS, file_of, part_path, part_paths, read_lines
from draftmill_jobs.shared.settings import DatasetSettings, Share, sampling_facts
from draftmill_jobs.shared.tally import FailureTally, Tally


@dataclass(frozen=True)
class OpenDataset:
    """A dataset's folder, locked and read: what is there, and where to go on.

    Attributes:
        places: Where the rows stand in the source that have samples to ask; None when all have.
        earlier: What its conversations go on from.
    """

    settings: DatasetSettings
    tally: Tally
    table: RowTable
    places: Sequence[int] | None
    records: Path
    dead_letters: Path
    lock: PartLock
    share: Share
    earlier: EarlierTurns

    @cached_property
    def sampling(self) -> dict[str, Any]:
        """Sampling as it is sent and recorded, without a sample's own seed."""
        return sampling_facts(self.settings.sampling)

    def conversations_to_ask(self) -> Iterator[list[SourceRow]]:
        """The rows of the source that have turns to ask, in the dataset's order, each with all its turns.

        Raises:
            JobRefusedError: The source cannot be read.
        """
        rows = DatasetRows(self.settings).read(self.places)
        return (list(turns) for _, turns in groupby(rows, key=attrgetter("position")))

    def samples_to_ask(self, row: SourceRow) -> list[int] | None:
        """The samples of a row that are this worker's and not settled; None if its prompt came before.

        Raises:
            JobFailedError: The row was not there when the source was read before.
        """
        try:
            is_first = self.table.meet(row.key)
        except KeyError:
            raise source_changed(self.settings.name, row.position) from None
        return self.table.open_samples(row.key, self.share) if is_first else None


def source_changed(dataset: str, position: int) -> JobFailedError:
    """A row of the source is not the one that was there when the source was read before."""
    return JobFailedError(
        "SourceChanged",
        f"dataset {dataset}: row {position} of the source was changed while the run was reading it; the next "
        "attempt takes the source as it is then",
    )


def open_dataset(
    settings: DatasetSettings,
    prompts: PromptIndex,
    *,
    model: TargetModel,
    run: JobRun,
    share: Share,
    failures: FailureTally,
) -> OpenDataset:
    """Locks the folder's part, repairs what a crash left, and reads every settled row.

    Time grows with the size of the files, and memory by 30 bytes a prompt and one a row.

    Raises:
        JobRefusedError: The folder belongs to other answers, or cannot be written.
        FolderInUseError: Another process is writing there.
        StorageFullError: There is no room for what is written at the start.
    """
    lock = take_over(settings, prompts, model=model, run=run, share=share)
    try:
        return _read(settings, prompts, lock=lock, share=share, failures=failures)
    except BaseException:
        lock.release()
        raise


def _read(
    settings: DatasetSettings,
    prompts: PromptIndex,
    *,
    lock: PartLock,
    share: Share,
    failures: FailureTally,
) -> OpenDataset:
    folder = settings.folder
    forget_left_out(folder, share)
    table = RowTable(prompts.keys, settings.sampling.samples_per_prompt, prompts.roots)
    tally = Tally(settings.name, table.total(share))
    tally.skipped = table.repeated(share)
    for path in part_paths(folder, RECORDS):
        _read_records(path, tally, table, share)
    for path in part_paths(folder, DEAD_LETTERS):
        _read_dead_letters(path, tally, table, failures, share)
    return OpenDataset(
        settings,
        tally,
        table,
        places=prompts.places_of(table.open_rows(share)),
        records=file_of(part_path(folder, RECORDS, share), settings.compression),
        dead_letters=part_path(folder, DEAD_LETTERS, share),
        lock=lock,
        share=share,
        earlier=read_earlier_turns(folder, prompts, table, share),
    )


def _read_records(path: Path, tally: Tally, table: RowTable, share: Share) -> None:
    for head in read_heads(path):
        settling = table.settle(head.id)
        if settling is Settling.AGAIN:
            raise JobRefusedError(
                "OutputCorrupt", f"{path}: the row {head.id} has two records in this folder"
            )
        if settling is Settling.FIRST and table.owns(head.id, share):
            tally.add_record(head.status, head.finish_reason, head.completion_tokens)


def _read_dead_letters(
    path: Path, tally: Tally, table: RowTable, failures: FailureTally, share: Share
) -> None:
    for line in read_lines(path):
        identity = line.value["id"]
        if table.settle(identity) is Settling.FIRST and table.owns(identity, share):
            tally.errors += 1
            failures.add(line.value)
