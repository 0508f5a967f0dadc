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
        turn: Number of the turn where every turn of a conversation is a row; None where the last one is.
    """

    key: str
    position: int
    prompt: Prompt | None
    problem: str = ""
    turn: int | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """One row to ask: a prompt, the number of the sample and, as of the source's row, that of the turn."""

    key: str
    position: int
    sample: int
    prompt: Prompt
    turn: int | None = None

    @property
    def id(self) -> str:
        """The row's identity within its dataset."""
        return row_id(self.key, self.sample, self.turn)


def owns(share: Share, identity: str) -> bool:
    """Whether what has this identity falls to this worker."""
    return share.count == 1 or owner_number(identity) % share.count == share.index


def owner_number(identity: str) -> int:
    """The number whose rest, divided by the number of workers, is the worker's index."""
    return zlib.crc32(identity.encode())
