"""Source rows with their identities."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

from draftmill_api.record import prompt_key, row_id
from draftmill_jobs.prompts.shapes import Prompt, UnusableRowError, read_prompt
from draftmill_jobs.prompts.sources import BrokenRow, Source, open_source
from draftmill_jobs.shared.settings import DatasetSettings, Share


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A row of a source: a prompt, or the reason why it is none.

    Attributes:
        key: The prompt's key; of an unusable row, a hash of its content.
        position: Place in the source.
    """

    key: str
    position: int
    prompt: Prompt | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """One row to ask: a prompt and the number of the sample."""

    key: str
    position: int
    sample: int
    prompt: Prompt

    @property
    def id(self) -> str:
        """The row's identity within its dataset."""
        return row_id(self.key, self.sample)


def read_rows(
    dataset: DatasetSettings, source: Source | None = None, wanted: Sequence[int] | None = None
) -> Iterator[SourceRow]:
    """Yields the dataset's rows in order, at most `max_samples` of them, duplicates included.

    Args:
        dataset: Whose rows.
        source: Opened already, perhaps.
        wanted: Only those at these places of the source, which ascend.

    Raises:
        JobRefusedError: The source cannot be read.
    """
    rows = (source or open_source(dataset.source)).rows(wanted)
    places: Iterable[int] = count() if wanted is None else wanted
    for position, row in islice(zip(places, rows, strict=False), dataset.max_samples):
        yield _identify(row, position, dataset.chat_template_kwargs)


def owns(share: Share, identity: str) -> bool:
    """Whether a row falls to this worker."""
    return share.count == 1 or zlib.crc32(identity.encode()) % share.count == share.index


def _identify(row: Any, position: int, template_arguments: dict[str, Any]) -> SourceRow:
    if isinstance(row, BrokenRow):
        return SourceRow(_hash(row.line), position, None, row.problem)
    try:
        prompt = read_prompt(row)
        key = prompt_key(prompt.messages, prompt.tools, template_arguments)
    except UnusableRowError as error:
        return SourceRow(_hash(repr(row).encode()), position, None, str(error))
    except TypeError as error:  # a value of Arrow that JSON does not have, such as a date
        return SourceRow(_hash(repr(row).encode()), position, None, f"not JSON: {error}")
    return SourceRow(key, position, prompt)


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]
