"""The one error that people see: a sentence on what is wrong and what to do."""

from __future__ import annotations

from pathlib import Path


class DevError(Exception):
    """Something on this machine stands in the way. The message is for people."""


class CommandError(DevError):
    """A program that we ran failed.

    Attributes:
        log: The file that holds the program's whole output.
    """

    def __init__(self, what: str, log: Path, last_lines: str = "") -> None:
        self.log = log
        shown = f"\n{last_lines}" if last_lines else ""
        super().__init__(f"{what}{shown}\nThe whole log: {log}")
