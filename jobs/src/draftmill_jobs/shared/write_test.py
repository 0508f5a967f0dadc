"""Whether the user that a job runs as can write to a folder, and lock and go on with files there."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from tempfile import NamedTemporaryFile

from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.shared.lock import lock_file


def try_to_write(output: Path) -> None:
    """Writes, locks and removes a small file, as the group and user that the worker will be.

    Raises:
        JobRefusedError: It cannot be written, or not be locked.
    """
    try:
        output.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=output, prefix=".write-test-") as file:
            lock_file(file.fileno(), Path(file.name))
            file.write(b"draftmill\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise _not_writable(output, error) from error


def try_to_go_on_with(files: Iterable[Path]) -> None:
    """Opens files that are there as a worker will, and changes nothing in them.

    Raises:
        JobRefusedError: One cannot be written.
    """
    for path in files:
        try:
            path.open("ab").close()
        except OSError as error:
            raise _not_writable(path, error) from error


def _not_writable(path: Path, error: OSError) -> JobRefusedError:
    return JobRefusedError(
        "StorageNotWritable",
        f"user {os.getuid()} of group {os.getgid()} cannot write to {path}: {error.strerror}; "
        "make the volume writable for it or change storage.runAs",
    )
