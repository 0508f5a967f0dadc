"""Reading rows from files and from Hugging Face datasets."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import orjson

from draftmill_api.jobconfig import JobSource
from draftmill_api.v1alpha1.synthrun import HuggingFaceDataset
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.shared.files import sha256_of

T = TypeVar("T")

_PARQUET_BATCH = 256  # rows decoded at once


@dataclass(frozen=True, slots=True)
class BrokenRow:
    """A line that is no JSON."""

    line: bytes
    problem: str


class Source(Protocol):
    """Rows in a fixed order, read as a stream, as often as needed."""

    def identity(self) -> str | None:
        """The same as long as the rows are the same; None where to know that takes reading all of them."""
        ...

    def rows(self, wanted: Sequence[int] | None = None) -> Iterator[Any]:
        """Yields each row, or a `BrokenRow` in its place.

        Args:
            wanted: Only those at these places, which are counted from 0 and ascend; no other is parsed.
        """
        ...


def open_source(source: JobSource) -> Source:
    """Chooses the reader.

    Raises:
        JobRefusedError: The file or dataset is not there, or of an unknown kind.
    """
    if source.hugging_face is not None:
        return _load_dataset(source.hugging_face)
    assert source.file is not None  # noqa: S101 - exactly one of the two, says the type
    path = Path(source.file.path)
    if not path.is_file():
        raise JobRefusedError("PromptsNotFound", f"there is no file of prompts at {path}")
    match path.suffix:
        case ".parquet":
            return ParquetSource(path)
        case ".json" if _starts_as_array(path):
            return JsonSource(path)
        case ".jsonl" | ".json":
            return JsonLinesSource(path)
        case _:
            raise JobRefusedError("PromptsUnreadable", f"{path}: use a .jsonl, .json or .parquet file")


class JsonLinesSource:
    """One JSON object a line; blank lines are no rows."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def identity(self) -> str:
        """The hash of the file."""
        return sha256_of(self._path)

    def rows(self, wanted: Sequence[int] | None = None) -> Iterator[Any]:
        """Yields the parsed lines."""
        with self._path.open("rb") as file:
            lines = (line for line in file if not line.isspace())
            for line in lines if wanted is None else _chosen(lines, wanted):
                try:
                    yield orjson.loads(line)
                except orjson.JSONDecodeError as error:
                    yield BrokenRow(line, f"not JSON: {error}")


class JsonSource:
    """A file that holds one JSON array of rows; read whole."""

    def __init__(self, path: Path) -> None:
        content = path.read_bytes()
        self._identity = hashlib.sha256(content).hexdigest()
        try:
            self._rows: list[Any] = orjson.loads(content)
        except orjson.JSONDecodeError as error:
            raise JobRefusedError("PromptsUnreadable", f"{path} is not JSON: {error}") from error

    def identity(self) -> str:
        """The hash of the file."""
        return self._identity

    def rows(self, wanted: Sequence[int] | None = None) -> Iterator[Any]:
        """Yields the array's items."""
        return iter(self._rows) if wanted is None else _chosen(self._rows, wanted)


class ParquetSource:
    """A Parquet file, read in batches."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa  # noqa: PLC0415 - heavy, and not always needed
        from pyarrow import parquet  # noqa: PLC0415 - heavy, and not always needed

        self._path = path
        try:
            self._file = parquet.ParquetFile(path)
        except pa.ArrowInvalid as error:
            raise JobRefusedError("PromptsUnreadable", f"{path} is not Parquet: {error}") from error

    def identity(self) -> str:
        """The hash of the file."""
        return sha256_of(self._path)

    def rows(self, wanted: Sequence[int] | None = None) -> Iterator[Any]:
        """Yields rows as objects."""
        start = 0
        for batch in self._file.iter_batches(batch_size=_PARQUET_BATCH):
            stop = start + len(batch)
            if wanted is not None:
                first, last = bisect_left(wanted, start), bisect_left(wanted, stop)
                batch = batch.take([place - start for place in wanted[first:last]])  # noqa: PLW2901
            yield from batch.to_pylist()
            start = stop


class DatasetSource:
    """A dataset of the `datasets` library."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def identity(self) -> None:
        """A dataset does not say what it holds."""

    def rows(self, wanted: Sequence[int] | None = None) -> Iterator[Any]:
        """Yields rows as objects."""
        return iter(self._dataset if wanted is None else self._dataset.select(wanted))


def _load_dataset(wanted: HuggingFaceDataset) -> DatasetSource:
    import datasets  # noqa: PLC0415 - heavy, and not always needed

    datasets.disable_progress_bars()
    try:
        dataset = datasets.load_dataset(
            wanted.repo, name=wanted.config, split=wanted.split, revision=wanted.revision
        )
    except (datasets.exceptions.DatasetsError, OSError, ValueError) as error:
        raise JobRefusedError(
            "PromptsNotFound",
            f"cannot load dataset {wanted.repo}, split {wanted.split}, from the hub or its cache: {error}",
        ) from error
    return DatasetSource(dataset)


def _chosen(rows: Iterable[T], wanted: Sequence[int]) -> Iterator[T]:
    """Those of the rows that stand at the wanted places."""
    places = iter(wanted)
    place = next(places, None)
    for number, row in enumerate(rows):
        if place is None:
            return
        if number == place:
            yield row
            place = next(places, None)


def _starts_as_array(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4096).lstrip()[:1] == b"["
