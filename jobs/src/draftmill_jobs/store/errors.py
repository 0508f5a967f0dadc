"""What can be wrong with a store."""

from __future__ import annotations

from draftmill_jobs.errors import JobRefusedError


class StoreCorruptError(JobRefusedError):
    """The files of a store contradict each other in a way that no crash of a writer leaves."""

    def __init__(self, message: str) -> None:
        super().__init__("StoreCorrupt", f"{message}; see `draftmill store verify`")


class StoreDiffersError(JobRefusedError):
    """A store exists that is bound to something else."""

    def __init__(self, message: str) -> None:
        super().__init__("StoreDiffers", f"{message}; choose another output.path")
