"""One writer for each part file: a lock that the kernel (or the NFS server) drops when its holder dies."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from draftmill_api.jobconfig import JobRun
from draftmill_jobs.errors import JobRefusedError

_SUFFIX = ".lock"
_NO_LOCKS: Final = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has a lock.

    Attributes:
        restart: The run's restart word that it was started with.
        workers: How many workers share the rows; 0 when it does not say.
    """

    host: str
    pid: int
    run: str
    uid: str
    restart: str = ""
    workers: int = 0

    def shares_with(self, other: Holder) -> bool:
        """Whether both are workers of one run that were started with the same split of the rows."""
        return (self.uid, self.restart, self.workers) == (other.uid, other.restart, other.workers)

    def __str__(self) -> str:
        return f"run {self.run} (uid {self.uid or 'none'}) on {self.host}, process {self.pid}"


def this_process(run: JobRun, workers: int) -> Holder:
    """The holder that this process is, one of so many workers."""
    name = f"{run.namespace}/{run.name}" if run.namespace else run.name
    return Holder(socket.gethostname(), os.getpid(), name, run.uid, run.restart, workers)


def parts_with_locks(folder: Path, stem: str) -> set[Path]:
    """The parts of a kind that somebody has locked ever, whether they exist or not."""
    return {folder / path.name[1:].removesuffix(_SUFFIX) for path in folder.glob(f".{stem}*{_SUFFIX}")}


def lock_files(folder: Path) -> list[Path]:
    """The files that are locked there, or were."""
    return sorted(folder.glob(f".*{_SUFFIX}"))


class LockHeldError(Exception):
    """Another process has the lock; `holder` is None while it is still writing its name."""

    def __init__(self, path: Path, holder: Holder | None) -> None:
        super().__init__(f"{path} is held by {holder or 'another process'}")
        self.holder = holder


class FolderInUseError(Exception):
    """Another process is writing there; perhaps one that is about to end.

    Attributes:
        same_run: It is an earlier attempt of this run.
        is_passing: It is another worker with its own share of the rows, which is just taking the folder over.
    """

    def __init__(self, folder: Path, holder: Holder | None, me: Holder, *, is_passing: bool = False) -> None:
        super().__init__(f"{folder} is being written by {holder or 'another process'}")
        self.same_run = holder is not None and bool(me.uid) and holder.uid == me.uid
        self.is_passing = is_passing


class PartLock:
    """An exclusive lock beside a part file.

    The lock is the kernel's, not the file's existence: a dead holder's file stays and does not block.
    `flock` also works between pods of one node and, since NFS clients send it to the server, across nodes.
    """

    def __init__(self, part: Path, holder: Holder) -> None:
        """Takes the lock.

        Args:
            part: The file that it is of.
            holder: Who takes it.

        Raises:
            LockHeldError: Someone else has it.
            JobRefusedError: The volume has no locks.
            OSError: The lock's file cannot be written.
        """
        path = part.with_name(f".{part.name}{_SUFFIX}")
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            lock_file(self._descriptor, path)
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, json.dumps(asdict(holder)).encode(), 0)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Gives the lock back."""
        os.close(self._descriptor)


def lock_file(descriptor: int, path: Path) -> None:
    """Locks an open file, until its descriptor is closed.

    Raises:
        LockHeldError: Someone else has the lock.
        JobRefusedError: The volume has no locks.
        OSError: The system does not lock it for another reason.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise LockHeldError(path, _read_holder(descriptor)) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        raise JobRefusedError(
            "StorageCannotLock",
            f"{path.parent} is on a volume without locks ({error.strerror}), so two workers could write one "
            "file: mount it with them (NFS: with its lock service, Lustre: -o flock), or use another volume",
        ) from error


def _read_holder(descriptor: int) -> Holder | None:
    try:
        return Holder(**json.loads(os.pread(descriptor, 4096, 0)))
    except (ValueError, TypeError):
        return None
