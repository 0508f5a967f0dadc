"""Source rows with their identities."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from draftmill_api.record import row_id
from draftmill_jobs.prompts.shapes import Prompt
from draftmill_jobs.shared.settings import Share


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


def owns(share: Share, identity: str) -> bool:
    """Whether a row falls to this worker."""
    return share.count == 1 or zlib.crc32(identity.encode()) % share.count == share.index
