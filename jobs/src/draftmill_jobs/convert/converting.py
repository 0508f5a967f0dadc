"""From the output of a finished run to a file or folder of another format, at once or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Any, Final, assert_never

import orjson

from draftmill_api.record import Record
from draftmill_jobs.convert.formats import (
    TRAINED,
    NotTextError,
    column_kinds,
    to_columns,
    to_specforge,
    to_specforge_chat,
    to_speculators,
)
from draftmill_jobs.convert.reading import read_finished
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.shared.files import sync_folder

_BATCH: Final = 256  # records turned into columns at once


class Target(StrEnum):
    """What is written."""

    SPECFORGE = "specforge"
    SPECFORGE_CHAT = "specforge-chat"
    SPECULATORS = "speculators"
    PARQUET = "parquet"
    DATASET = "dataset"


SUFFIXES: Final = {
    Target.SPECFORGE: ".jsonl",
    Target.SPECFORGE_CHAT: ".jsonl",
    Target.SPECULATORS: ".jsonl",
    Target.PARQUET: ".parquet",
    Target.DATASET: "",
}
"""What the output's name has to end with; a dataset is a folder."""


@dataclass
class Converted:
    """What became of the records.

    Attributes:
        rows: Rows written.
        left_out: Records that are no rows, by why.
    """

    rows: int = 0
    left_out: Counter[str] = field(default_factory=Counter)


def convert(folder: Path, target: Target, output: Path, dataset: str | None = None) -> Converted:
    """Writes the records of a finished run, or of one of its datasets; memory does not grow with them.

    Raises:
        JobRefusedError: The run cannot be read, or the output is there already or has another ending.
    """
    if output.exists():
        raise JobRefusedError("ConfigurationInvalid", f"{output} is there already: choose another --output")
    if SUFFIXES[target] and output.suffix != SUFFIXES[target]:
        raise JobRefusedError(
            "ConfigurationInvalid", f"{output}: name it so that it ends with {SUFFIXES[target]}"
        )
    converted = Converted()
    records = read_finished(folder, dataset)
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".convert-", dir=output.parent) as scratch:
        made = Path(scratch) / "made"
        match target:
            case Target.SPECFORGE:
                _write_lines(made, _rows(records, to_specforge, converted))
            case Target.SPECFORGE_CHAT:
                _write_lines(made, _rows(records, to_specforge_chat, converted))
            case Target.SPECULATORS:
                _write_lines(made, _rows(records, to_speculators, converted))
            case Target.PARQUET:
                _write_parquet(made, records, converted)
            case Target.DATASET:
                _write_parquet(made.with_suffix(".parquet"), records, converted)
                _save_dataset(made.with_suffix(".parquet"), made)
            case _:
                assert_never(target)
        made.rename(output)
    sync_folder(output.parent)
    return converted


def _rows(
    records: Iterable[Record], to_row: Callable[[Record], dict[str, Any]], converted: Converted
) -> Iterator[dict[str, Any]]:
    """Rows of the answers that are trained on."""
    for record in records:
        if record.status not in TRAINED:
            converted.left_out[record.status] += 1
            continue
        try:
            row = to_row(record)
        except NotTextError as error:
            converted.left_out[str(error)] += 1
            continue
        converted.rows += 1
        yield row


def _write_lines(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    with path.open("wb") as file:
        for row in rows:
            file.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
        file.flush()
        os.fsync(file.fileno())


def _write_parquet(path: Path, records: Iterable[Record], converted: Converted) -> None:
    import pyarrow as pa  # noqa: PLC0415 - heavy, and not always needed
    from pyarrow import parquet  # noqa: PLC0415 - heavy, and not always needed

    types = {
        "text": pa.string(),
        "json": pa.string(),
        "int": pa.int64(),
        "float": pa.float64(),
        "ids": pa.list_(pa.int32()),
    }
    schema = pa.schema([(name, types[kind]) for name, kind in column_kinds().items()])
    left = iter(records)
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        while batch := [to_columns(record) for record in islice(left, _BATCH)]:
            writer.write_batch(pa.RecordBatch.from_pylist(batch, schema))
            converted.rows += len(batch)


def _save_dataset(source: Path, folder: Path) -> None:
    import datasets  # noqa: PLC0415 - heavy, and not always needed

    datasets.disable_progress_bars()
    cache = folder.with_name("cache")
    rows = datasets.Dataset.from_parquet(str(source), cache_dir=str(cache))
    rows.save_to_disk(folder)
    del rows
    shutil.rmtree(cache)
