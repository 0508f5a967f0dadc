"""Datasets of the `datasets` library: rows in Arrow files that are mapped into memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from pathlib import Path
from typing import Any, Final

from draftmill_jobs.prompts.sources.base import IndexedRows

_BATCH: Final = 64  # rows gathered at once


class DatasetSource:
    """A split of a dataset.

    Args:
        dataset: Of the library.
        identity: The same as long as the rows are the same; None when nobody knows.
    """

    def __init__(self, dataset: Any, identity: str | None) -> None:
        self._dataset = dataset
        self._identity = identity

    def __len__(self) -> int:
        return len(self._dataset)

    def identity(self) -> str | None:
        """As it was given."""
        return self._identity

    def rows(self, wanted: Sequence[int] | None = None) -> Iterator[Any]:
        """Yields rows as objects."""
        return iter(self._dataset) if wanted is None else self.rows_at(wanted)

    def indexed(self, scratch: Path) -> AbstractContextManager[IndexedRows]:  # noqa: ARG002 - no copy is needed
        """Itself."""
        return nullcontext(self)

    def rows_at(self, positions: Iterable[int]) -> Iterator[Any]:
        """Yields rows as objects."""
        left = iter(positions)
        while batch := [int(position) for position in islice(left, _BATCH)]:
            yield from self._dataset.__getitems__(batch)


def map_files(paths: Sequence[Path]) -> DatasetSource:
    """The rows of Arrow files, one after another."""
    import datasets  # noqa: PLC0415 - heavy, and not always needed

    parts = [datasets.Dataset.from_file(str(path)) for path in paths]
    return DatasetSource(parts[0] if len(parts) == 1 else datasets.concatenate_datasets(parts), None)
