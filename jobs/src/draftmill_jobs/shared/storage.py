"""What it means that a volume does not take data, and waiting until a full one does."""

from __future__ import annotations

import asyncio
import errno
import logging
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

from draftmill_jobs.errors import JobError, JobFailedError, JobRefusedError

log = logging.getLogger(__name__)

T = TypeVar("T")

ROOM_SECONDS: Final = 1.0
"""Seconds between looks at a full volume."""
_FULL: Final = {errno.ENOSPC, errno.EDQUOT}
_READ_ONLY: Final = {errno.EROFS, errno.EACCES, errno.EPERM}


class StorageFullError(Exception):
    """A file cannot be written until there is room on its volume, or in its owner's quota."""

    def __init__(self, path: Path, error: OSError, size: int = 0) -> None:
        """Says so.

        Args:
            path: The file.
            error: What the system said.
            size: Bytes that wait to be written.
        """
        waiting = f"; {size} bytes wait to be written" if size else ""
        super().__init__(
            f"there is no room for {path}: {error.strerror}, {_free(path)} bytes are free{waiting}. "
            "Remedy: free space on the volume, enlarge it or raise the quota; then it goes on by itself"
        )


def write_failure(path: Path, error: OSError, size: int = 0) -> StorageFullError | JobError:
    """What a failed write means: wait for room, or end with a sentence.

    Args:
        path: What was written.
        error: What the system said.
        size: Bytes that wait to be written.
    """
    if error.errno in _FULL:
        return StorageFullError(path, error, size)
    if error.errno in _READ_ONLY:
        return JobFailedError(
            "StorageNotWritable",
            f"cannot write {path}: {error.strerror}; what is there already is whole. Mount the volume "
            "writable, or make the folder writable for the user that the job runs as",
        )
    return JobFailedError(
        "StorageFailed",
        f"cannot write {path}: {error.strerror}; what is there already is whole. Look at the volume: "
        "the next attempt goes on from there",
    )


def refused_at_start(failure: StorageFullError | JobError) -> StorageFullError | JobError:
    """The same for a job that has not begun: a folder that it may not write is wrong for every attempt."""
    if isinstance(failure, JobError) and failure.reason == "StorageNotWritable":
        return JobRefusedError(failure.reason, failure.message)
    return failure


async def until_room(
    action: Callable[[], Awaitable[T]], say: Callable[[str], None], stop: asyncio.Event
) -> T | None:
    """Does something that writes, again and again while its volume is full; None after `stop`.

    Args:
        action: Raises `StorageFullError` while there is no room.
        say: Told what it waits for, in a sentence, and an empty one when there is room again.
        stop: Ends the waiting.
    """
    said = ""
    while not stop.is_set():
        try:
            done = await action()
        except StorageFullError as error:
            if not said:
                log.warning("%s", error)
            said = str(error)
            say(said)
            await asyncio.sleep(ROOM_SECONDS)
        else:
            if said:
                say("")
            return done
    return None


def _free(path: Path) -> int:
    return shutil.disk_usage(path if path.is_dir() else path.parent).free
