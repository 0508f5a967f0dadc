"""Taking over a dataset's folder: whose it is, what a crash left there, and what is asked again."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from draftmill_api.jobconfig import JobRun
from draftmill_api.manifest import RunFingerprint
from draftmill_jobs.model.facts import TargetModel
from draftmill_jobs.output.fitting import check_fit
from draftmill_jobs.prompts.index import PromptIndex, load_index, write_index
from draftmill_jobs.shared.files import write_atomically
from draftmill_jobs.shared.folder import (
    RUN_FILE,
    check_same,
    fingerprint_of,
    read_fingerprint,
    write_fingerprint,
)
from draftmill_jobs.shared.lock import (
    FolderInUseError,
    Holder,
    LockHeldError,
    PartLock,
    parts_with_locks,
    this_process,
)
from draftmill_jobs.shared.parts import (
    RECORDS,
    companion,
    files_of,
    files_with_answers,
    parse_line,
    part_path,
    parts_of_all_workers,
    read_lines,
)
from draftmill_jobs.shared.settings import DatasetSettings, Share
from draftmill_jobs.shared.storage import refused_at_start, write_failure
from draftmill_jobs.shared.tails import cut_torn_tail

log = logging.getLogger(__name__)


def take_over(
    settings: DatasetSettings, prompts: PromptIndex, *, model: TargetModel, run: JobRun, share: Share
) -> PartLock:
    """Locks this worker's part, repairs what nobody writes, and binds the folder to what is asked now.

    Workers do so one after another, so that the first one of a new run can forget passing failures in the
    parts of all of them before any has read them.

    Raises:
        JobRefusedError: The folder belongs to other answers, or cannot be written.
        FolderInUseError: Another process is writing there.
        StorageFullError: There is no room for what is written at the start.
    """
    folder, me = settings.folder, this_process(run, share.count)
    own = part_path(folder, RECORDS, share)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder, me):
            lock = _lock(own, me)
            try:
                asked = fingerprint_of(settings, model, run)
                check_fit(settings, asked, lambda _: prompts)
                _bind(folder, asked, own, me)
                if load_index(folder) != prompts:
                    write_index(folder, prompts)
            except BaseException:
                lock.release()
                raise
    except OSError as error:
        raise refused_at_start(write_failure(folder, error)) from error
    return lock


@contextmanager
def _alone(folder: Path, me: Holder) -> Iterator[None]:
    try:
        lock = PartLock(folder / RUN_FILE, me)
    except LockHeldError as held:
        is_passing = held.holder is not None and held.holder.shares_with(me)
        raise FolderInUseError(folder, held.holder, me, is_passing=is_passing) from held
    try:
        yield
    finally:
        lock.release()


def _lock(part: Path, me: Holder) -> PartLock:
    try:
        return PartLock(part, me)
    except LockHeldError as held:
        raise FolderInUseError(part.parent, held.holder, me) from held


def _bind(folder: Path, now: RunFingerprint, own: Path, me: Holder) -> None:
    before = read_fingerprint(folder)
    with ExitStack() as locks:
        idle, others_live = [own], False
        for part in sorted((parts_of_all_workers(folder) | parts_with_locks(folder, RECORDS)) - {own}):
            try:
                locks.callback(PartLock(part, me).release)
                idle.append(part)
            except LockHeldError as held:
                if held.holder is None or not held.holder.shares_with(me):
                    raise FolderInUseError(folder, held.holder, me) from held
                others_live = True  # and look after their parts themselves
        if before is not None and (others_live or files_with_answers(folder)):
            check_same(folder, before, now)  # who was at work while it was looked at may have written since
        is_anew = before is not None and _is_anew(before.run, now.run, others_live=others_live)
        for part in idle:
            _repair(part, forget=is_anew)
        if before is None or is_anew or before.fingerprint != now.fingerprint:
            write_fingerprint(folder, now)


def _is_anew(before: JobRun, now: JobRun, *, others_live: bool) -> bool:
    """Whether rows that failed in passing are asked again: for a re-created run or another restart word.

    A run without a uid, as on a laptop, is another one whenever none of its workers is at work.
    """
    if not now.uid:
        return not others_live
    return (before.uid, before.restart) != (now.uid, now.restart)


def _repair(records: Path, *, forget: bool) -> None:
    for path in (*files_of(records), *files_of(companion(records))):
        if cut := cut_torn_tail(path, lambda raw: parse_line(raw) is not None):
            log.warning("%s: cut off %d bytes that a crash left behind the last whole line", path, cut)
    if forget and companion(records).exists():
        _forget_passing_failures(companion(records))


def _forget_passing_failures(path: Path) -> None:
    """Leaves only the dead letters of rows that can never be answered; the others are asked again."""
    with path.open("rb") as file:
        lines = list(file)
    kept = [raw for raw, line in zip(lines, read_lines(path), strict=True) if line.value["permanent"]]
    if len(kept) < len(lines):
        write_atomically(path, b"".join(kept))
