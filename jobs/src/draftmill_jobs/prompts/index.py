"""`prompts.idx`: the prompts of a dataset by key, in the order in which they are read.

With it a restart need not read an unchanged source again, and a changed one is known for what it is: one that
has other prompts for those that were answered.
"""

from __future__ import annotations

import dataclasses
import hashlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from draftmill_api.base import ApiModel
from draftmill_api.record import canonical_json
from draftmill_jobs.prompts.reading import DatasetRows
from draftmill_jobs.prompts.table import KEY_BYTES
from draftmill_jobs.shared.files import write_atomically
from draftmill_jobs.shared.settings import DatasetSettings

INDEX_FILE: Final = "prompts.idx"

_VERSION: Final = 1  # of how rows become keys: another one reads every source again
_NOT_OF_ROWS: Final = {"folder", "compression", "max_tokens", "sampling"}  # settings that change no prompt


class _Header(ApiModel):
    """The file's first line; the keys follow it, and then the places."""

    origin: str
    rows: int = Field(ge=0)
    filtered: int = Field(ge=0)
    sha256: str = Field(description="Of all that follows the line.")


@dataclass(frozen=True)
class PromptIndex:
    """Every row of a dataset, duplicates and rows without a prompt included.

    Attributes:
        origin: The same for the same source read in the same way; empty where it cannot say so.
        keys: `KEY_BYTES` of each row.
        places: Where each row stands in the source.
        filtered: Rows of the source beside these, which the dataset's filters left out.
    """

    origin: str
    keys: bytes
    places: array[int]
    filtered: int = 0

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(self.places)

    @cached_property
    def roots(self) -> NDArray[np.intp]:
        """Of each row the one that its conversation begins with: turns of a conversation stand together."""
        places = np.frombuffer(self.places, dtype=np.uint64)
        begins = np.ones(self.rows, dtype=bool)
        begins[1:] = places[1:] != places[:-1]
        return np.maximum.accumulate(np.where(begins, np.arange(self.rows), 0))

    def prompts(self) -> NDArray[np.bytes_]:
        """The keys, sorted, each once."""
        return np.unique(np.frombuffer(self.keys, dtype=f"S{KEY_BYTES}"))

    @cached_property
    def fingerprint(self) -> str:
        """The identity of the prompts, in whatever order and however often they stand in the source."""
        return hashlib.sha256(self.prompts().tobytes()).hexdigest()[:16]

    def places_of(self, rows: NDArray[np.bool_]) -> Sequence[int] | None:
        """The places of these rows, ascending; None when they are all."""
        if rows.all():
            return None
        chosen = np.frombuffer(self.places, dtype=np.uint64)[rows]
        return array("Q", np.unique(chosen).tobytes())


def read_prompts(settings: DatasetSettings, known: Sequence[PromptIndex] = ()) -> PromptIndex:
    """The prompts that the source has now: those of a known index if it is of this very source, else read.

    Raises:
        JobRefusedError: The source cannot be read.
    """
    rows = DatasetRows(settings)
    origin = _origin(settings, rows)
    for index in known:
        if origin and index.origin == origin:
            return index
    keys, places = bytearray(), array("Q")
    for row in rows:
        keys += bytes.fromhex(row.key)
        places.append(row.position)
    return PromptIndex(origin, bytes(keys), places, rows.filtered)


def load_index(folder: Path) -> PromptIndex | None:
    """The index of a dataset's folder; None when there is none, or none that is whole."""
    try:
        header, _, body = (folder / INDEX_FILE).read_bytes().partition(b"\n")
        stated = _Header.model_validate_json(header)
    except (FileNotFoundError, ValidationError):
        return None
    if hashlib.sha256(body).hexdigest() != stated.sha256:
        return None
    end = stated.rows * KEY_BYTES
    return PromptIndex(stated.origin, body[:end], array("Q", body[end:]), stated.filtered)


def write_index(folder: Path, index: PromptIndex) -> None:
    """Writes the index into a dataset's folder."""
    body = index.keys + index.places.tobytes()
    header = _Header(
        origin=index.origin,
        rows=index.rows,
        filtered=index.filtered,
        sha256=hashlib.sha256(body).hexdigest(),
    )
    write_atomically(folder / INDEX_FILE, header.model_dump_json(by_alias=True).encode() + b"\n" + body)


def _origin(settings: DatasetSettings, source: DatasetRows) -> str:
    """What the rows follow from; a setting that is not known to change no prompt is taken to change them."""
    identity = source.identity()
    if identity is None:
        return ""
    names = {field.name for field in dataclasses.fields(settings)} - _NOT_OF_ROWS
    values = {name: _plain(getattr(settings, name)) for name in names}
    return hashlib.sha256(canonical_json([_VERSION, identity, values])).hexdigest()[:32]


def _plain(value: Any) -> Any:
    return value.to_json() if isinstance(value, ApiModel) else value
