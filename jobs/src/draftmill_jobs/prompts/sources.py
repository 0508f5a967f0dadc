"""Reading rows from files and from Hugging Face datasets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import orjson

from draftmill_api.jobconfig import JobSource
from draftmill_api.v1alpha1.synthrun import HuggingFaceDataset
from draftmill_jobs.errors import JobRefusedError

_PARQUET_BATCH = 256  # rows decoded at once


@dataclass(frozen=True, slots=True)
class BrokenRow:
    """A line that is no JSON."""

    line: bytes
    problem: str


class Source(Protocol):
    """Rows in a fixed order, read as a stream, as often as needed."""

    def count(self) -> int:
        """How many rows there are, without parsing them."""
        ...

    def rows(self) -> Iterator[Any]:
        """Yields each row, or a `BrokenRow` in its place."""
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

    def count(self) -> int:
        """Counts the lines that are not blank."""
        with self._path.open("rb") as file:
            return sum(not line.isspace() for line in file)

    def rows(self) -> Iterator[Any]:
        """Yields the parsed lines."""
        with self._path.open("rb") as file:
            for line in file:
                if line.isspace():
                    continue
                try:
                    yield orjson.loads(line)
                except orjson.JSONDecodeError as error:
                    yield BrokenRow(line, f"not JSON: {error}")


class JsonSource:
    """A file that holds one JSON array of rows; read whole."""

    def __init__(self, path: Path) -> None:
        try:
            self._rows: list[Any] = orjson.loads(path.read_bytes())
        except orjson.JSONDecodeError as error:
            raise JobRefusedError("PromptsUnreadable", f"{path} is not JSON: {error}") from error

    def count(self) -> int:
        """The length of the array."""
        return len(self._rows)

    def rows(self) -> Iterator[Any]:
        """Yields the array's items."""
        return iter(self._rows)


class ParquetSource:
    """A Parquet file, read in batches."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa  # noqa: PLC0415 - heavy, and not always needed
        from pyarrow import parquet  # noqa: PLC0415 - heavy, and not always needed

        try:
            self._file = parquet.ParquetFile(path)
        except pa.ArrowInvalid as error:
            raise JobRefusedError("PromptsUnreadable", f"{path} is not Parquet: {error}") from error

    def count(self) -> int:
        """The number of rows in the file's footer."""
        return int(self._file.metadata.num_rows)

    def rows(self) -> Iterator[Any]:
        """Yields rows as objects."""
        for batch in self._file.iter_batches(batch_size=_PARQUET_BATCH):
            yield from batch.to_pylist()


class DatasetSource:
    """A dataset of the `datasets` library."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def count(self) -> int:
        """The length of the split."""
        return len(self._dataset)

    def rows(self) -> Iterator[Any]:
        """Yields rows as objects."""
        return iter(self._dataset)


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


def _starts_as_array(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4096).lstrip()[:1] == b"["
