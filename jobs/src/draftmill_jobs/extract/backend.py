"""What computes hidden states, and what it is given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from draftmill_api.extractjob import ExtractJobConfig
from draftmill_jobs.extract.board import Board
from draftmill_jobs.extract.keeper import Keeper
from draftmill_jobs.extract.preparing import Prepared
from draftmill_jobs.extract.records import Row
from draftmill_jobs.extract.sampling import Sample


@dataclass(frozen=True, slots=True)
class Work:
    """The rows of this worker, and where they end.

    Attributes:
        rows: Those that are not settled yet; each is read when it is asked for.
        sample: All rows, settled ones too, for checks before the mass.
        stop: Set when nothing more shall be begun.
        config: The config in force, which may change.
    """

    prepared: Prepared
    rows: Iterator[Row]
    sample: Sample
    keeper: Keeper
    board: Board
    stop: asyncio.Event
    config: Callable[[], ExtractJobConfig]


class Backend(Protocol):
    """Computes the states of rows."""

    async def run(self, work: Work) -> None:
        """Returns when every row is kept or given up or, after `stop`, when what was begun is.

        Raises:
            JobError: It cannot go on.
        """
