"""Whether the user that a job runs as can write to a folder."""

from __future__ import annotations

import os
from pathlib import Path

from draftmill_jobs.errors import JobRefusedError


def try_to_write(output: Path) -> None:
    """Writes and removes a small file, as the group and user that the worker will be.

    Raises:
        JobRefusedError: It cannot be written.
    """
    probe = output / f".write-test-{os.getpid()}"
    try:
        output.mkdir(parents=True, exist_ok=True)
        with probe.open("wb") as file:
            file.write(b"draftmill\n")
            file.flush()
            os.fsync(file.fileno())
        probe.unlink()
    except OSError as error:
        raise JobRefusedError(
            "StorageNotWritable",
            f"user {os.getuid()} of group {os.getgid()} cannot write to {output}: {error.strerror}; "
            "make the volume writable for it or change storage.runAs",
        ) from error
