"""Source rows with their identities, and the table of which of them are settled."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
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


def read_rows(dataset: DatasetSettings, source: Source | None = None) -> Iterator[SourceRow]:
    """Yields the dataset's rows in order, at most `max_samples` of them, duplicates included.

    Raises:
        JobRefusedError: The source cannot be read.
    """
    rows = (source or open_source(dataset.source)).rows()
    for position, row in enumerate(islice(rows, dataset.max_samples)):
        yield _identify(row, position, dataset.chat_template_kwargs)


def count_rows(dataset: DatasetSettings, source: Source) -> int:
    """Rows to account for: source rows, cut by `max_samples`, times samples."""
    count = source.count()
    if dataset.max_samples is not None:
        count = min(count, dataset.max_samples)
    return count * dataset.sampling.samples_per_prompt


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


class RowTable:
    """Which prompts of a dataset have been met and which of their samples are settled.

    Holds 16 bytes and a small number for each prompt, so that a million rows fit in some 150 MB.
    """

    def __init__(self) -> None:
        self._rows: dict[bytes, int] = {}  # key -> bit 0: met in this pass; bit 1 + s: sample s is settled

    def settle(self, identity: str) -> bool:
        """Notes that a row has a record or a dead letter. False if it was noted before."""
        key, bit = _split(identity)
        before = self._rows.get(key, 0)
        self._rows[key] = before | bit
        return not before & bit

    def is_settled(self, identity: str) -> bool:
        """Whether the row has a record or a dead letter."""
        key, bit = _split(identity)
        return bool(self._rows.get(key, 0) & bit)

    def meet(self, key: str) -> bool:
        """Notes that the source holds this prompt. False if it was met before: a duplicate."""
        packed = bytes.fromhex(key)
        before = self._rows.get(packed, 0)
        self._rows[packed] = before | 1
        return not before & 1

    def begin_pass(self) -> None:
        """Forgets which prompts were met: the source is about to be read from its start."""
        for key, bits in self._rows.items():
            self._rows[key] = bits & ~1

    def asks_for(self, identity: str, samples: int) -> bool:
        """Whether the source holds the row's prompt, and so many samples of it are asked for."""
        key, bit = _split(identity)
        return bool(self._rows.get(key, 0) & 1) and bit < 2 << samples

    def has_strangers(self, samples: int) -> bool:
        """Whether a row is settled that `asks_for` denies."""
        wanted = (2 << samples) - 1
        return any(bits & ~wanted if bits & 1 else bits for bits in self._rows.values())

    def unsettled(self, samples: int) -> tuple[int, str]:
        """How many rows of the source have neither record nor dead letter, and one of them."""
        wanted = (2 << samples) - 2
        count, example = 0, ""
        for key, bits in self._rows.items():
            missing = wanted & ~bits if bits & 1 else 0
            count += missing.bit_count()
            if missing and not example:
                example = row_id(key.hex(), (missing & -missing).bit_length() - 2)
        return count, example


def _split(identity: str) -> tuple[bytes, int]:
    key, _, sample = identity.partition("-s")
    return bytes.fromhex(key), 2 << int(sample or 0)
