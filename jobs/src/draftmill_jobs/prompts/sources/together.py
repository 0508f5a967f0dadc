"""The files of a folder as one source."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.prompts.sources.base import IndexedRows, chosen
from draftmill_jobs.prompts.sources.files import KINDS, is_supported, open_file
from draftmill_jobs.prompts.sources.indexes import ChainedIndex


class FilesSource:
    """The rows of files, one file after another. Each is opened only while it is read."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths

    def identity(self) -> str | None:
        """The hash of their identities; their names do not matter but for their order."""
        identities = [open_file(path).identity() for path in self._paths]
        return hashlib.sha256(repr(identities).encode()).hexdigest()

    def rows(self, wanted: Sequence[int] | None = None) -> Iterator[Any]:
        """Yields the rows of each in turn."""
        each = (row for path in self._paths for row in open_file(path).rows())
        yield from chosen(each, wanted)

    @contextmanager
    def indexed(self, scratch: Path) -> Iterator[IndexedRows]:
        """The indexes of all."""
        with ExitStack() as stack:
            yield ChainedIndex(
                [stack.enter_context(open_file(path).indexed(scratch)) for path in self._paths]
            )


def find_files(folder: Path, pattern: str) -> list[Path]:
    """The files of a folder that a pattern takes and that can be read, in the order of their paths.

    Raises:
        JobRefusedError: There are none.
    """
    if not folder.is_dir():
        raise JobRefusedError("PromptsNotFound", f"there is no folder of prompts at {folder}")
    found = [
        path
        for path in folder.glob(pattern)
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    taken = sorted(
        (path for path in found if is_supported(path)), key=lambda path: path.relative_to(folder).parts
    )
    if not taken:
        others = f"; {found[0].name} is of another kind" if found else ""
        raise JobRefusedError(
            "PromptsNotFound", f"no file of {folder} matches {pattern} and is {KINDS}{others}"
        )
    return taken
