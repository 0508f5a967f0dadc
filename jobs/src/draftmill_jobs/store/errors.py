"""What can be wrong with a store."""

from __future__ import annotations

from pathlib import Path

from draftmill_jobs.errors import JobRefusedError


class StoreCorruptError(JobRefusedError):
    """The files of a store contradict each other in a way that no crash of a writer leaves."""

    def __init__(self, message: str) -> None:
        super().__init__("StoreCorrupt", f"{message}; see `draftmill store verify`")


class StoreDiffersError(JobRefusedError):
    """A store exists that is bound to something else."""

    def __init__(self, message: str) -> None:
        super().__init__("StoreDiffers", f"{message}; choose another output.path")


class OtherTokensError(StoreDiffersError):
    """A store has a row of the same name for other tokens."""

    def __init__(self, folder: Path, key: tuple[str, str]) -> None:
        super().__init__(f"{folder} holds row {'/'.join(key)} for other tokens than its record has")
