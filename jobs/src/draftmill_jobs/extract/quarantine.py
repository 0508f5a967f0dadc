"""`quarantine.jsonl`: rows whose states were refused for good: counted, and left alone by later attempts."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from draftmill_api.extractjob import QuarantinedRow
from draftmill_api.jobconfig import JobRun
from draftmill_api.v1alpha1.status import Failure
from draftmill_jobs.errors import JobFailedError, JobRefusedError
from draftmill_jobs.extract.records import Row
from draftmill_jobs.extract.remedies import remedy_for
from draftmill_jobs.prompts.rows import owns
from draftmill_jobs.shared.files import AppendOnlyFile
from draftmill_jobs.shared.parts import part_path, part_paths
from draftmill_jobs.shared.settings import Share
from draftmill_jobs.store.lines import cut_file, read_lines, render_lines

_STEM: Final = "quarantine"
_MOST_PERCENT: Final = 1
_MESSAGE_LIMIT: Final = 300  # characters of what was said about a row


def read_quarantine(folder: Path, run: JobRun) -> dict[tuple[str, str], QuarantinedRow]:
    """The rows that this run has given up, whichever worker did, by (dataset, id).

    Raises:
        JobRefusedError: A file was changed by something else.
    """
    lines = (line for path in part_paths(folder, _STEM) for line in read_lines(path, QuarantinedRow).values)
    return {
        (line.dataset, line.id): line for line in lines if (line.run, line.restart) == (run.uid, run.restart)
    }


class Quarantine:
    """This worker's file. All methods may be called from any thread."""

    def __init__(self, folder: Path, run: JobRun, share: Share) -> None:
        """Opens the file and cuts off what a crash left behind its last line."""
        self._run = run
        self._share = share
        self._writing = threading.Lock()
        path = part_path(folder, _STEM, share)
        is_new_run = not run.uid
        cut_file(path, 0 if is_new_run else read_lines(path, QuarantinedRow).end)
        self.rows = read_quarantine(folder, run)
        self._path = path
        self._file: AppendOnlyFile | None = None

    def add(self, row: Row, reason: str, message: str, tries: int) -> None:
        """Gives a row up, durably.

        Raises:
            JobFailedError: The disk does not take it.
        """
        line = QuarantinedRow(
            dataset=row.facts.dataset,
            id=row.facts.id,
            reason=reason,
            message=message[:_MESSAGE_LIMIT],
            tries=tries,
            created=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            run=self._run.uid,
            restart=self._run.restart,
        )
        with self._writing:
            try:
                self._file = self._file or AppendOnlyFile(self._path)
                self._file.append(render_lines([line]))
                self._file.sync()
            except OSError as error:
                raise JobFailedError("StorageFailed", f"cannot write {self._path}: {error}") from error
            self.rows[row.facts.key] = line

    def failures(self) -> list[Failure]:
        """Why rows of this worker's share were given up: the others tell of theirs."""
        return failures(line for line in list(self.rows.values()) if owns(self._share, line.id))

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()


def check_share(rows: Iterable[QuarantinedRow], total: int) -> None:
    """Refuses a run of which more than 1 % of all rows were given up.

    Raises:
        JobRefusedError: It is more.
    """
    lines = list(rows)
    if len(lines) * 100 > total * _MOST_PERCENT:
        worst = failures(lines, 1)[0]
        raise JobRefusedError(
            "TooManyQuarantined",
            f"{len(lines)} of {total} rows are quarantined, more than {_MOST_PERCENT} %: {worst.count} for "
            f"{worst.reason}, such as {worst.id}: {worst.message}; {worst.remedy or 'see what it says'}; "
            f"{_STEM}*.jsonl in the store names all",
        )


def failures(rows: Iterable[QuarantinedRow], most: int | None = None) -> list[Failure]:
    """Why rows were given up, the most frequent first, with a row and a remedy; at most so many reasons."""
    lines = list(rows)
    first = {line.reason: line for line in reversed(lines)}
    counts = Counter(line.reason for line in lines)
    return [
        Failure(
            reason=reason[:64],
            count=count,
            id=f"{first[reason].dataset}/{first[reason].id}"[:96],
            message=first[reason].message,
            remedy=remedy_for(reason),
        )
        for reason, count in counts.most_common(most)
    ]
