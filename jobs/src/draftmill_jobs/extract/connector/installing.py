"""`install-connector --to DIR`: puts the CPU connector where a server's PYTHONPATH finds it."""

from __future__ import annotations

import logging
from pathlib import Path

from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.shared.files import write_atomically

log = logging.getLogger(__name__)

FILE = "draftmill_cpu_connector.py"


def install_connector(folder: Path) -> None:
    """Copies the file.

    Raises:
        JobRefusedError: The folder cannot be written.
    """
    source = Path(__file__).with_name(FILE)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / FILE, source.read_bytes())
    except OSError as error:
        raise JobRefusedError(
            "StorageNotWritable", f"cannot write {FILE} to {folder}: {error.strerror}"
        ) from error
    log.info("%s is in %s", FILE, folder)
