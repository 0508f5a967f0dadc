"""Where rows end: in the store, or in the quarantine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from draftmill_api.store import ComputedIn
from draftmill_jobs.extract.board import Board
from draftmill_jobs.extract.quarantine import Quarantine, check_share
from draftmill_jobs.extract.records import Row
from draftmill_jobs.store import StoreRow, StoreWriter
from draftmill_jobs.store.checks import StateArray
from draftmill_jobs.store.layout import StateLayout

log = logging.getLogger(__name__)


class Keeper:
    """Takes what a backend computed. For the event loop; the writing is done in threads."""

    def __init__(
        self, writer: StoreWriter, quarantine: Quarantine, board: Board, layout: StateLayout, total: int
    ) -> None:
        """Takes what it writes to.

        Args:
            writer: Of the store.
            quarantine: Of the same worker.
            board: Told of every row.
            layout: Of the store.
            total: Rows of the whole run.
        """
        self._writer = writer
        self._quarantine = quarantine
        self._board = board
        self._layout = layout
        self._total = total

    async def keep(
        self,
        row: Row,
        states: StateArray,
        returned_ids: NDArray[np.int32],
        *,
        computed_in: ComputedIn,
        durable: Callable[[], None],
    ) -> None:
        """Stores a row's states.

        Args:
            row: The row.
            states: `[T, states, hidden]`, float32 or bfloat16 as uint16; not used after the return.
            returned_ids: `int32[T]`, the tokens that they are for.
            computed_in: What the states were before they became these.
            durable: Called once, from another thread, when the row will survive a crash; it must not raise.

        Raises:
            RowRefusedError: They cannot be right.
            JobFailedError: The disk does not take them.
        """
        stored = StoreRow(row.facts, row.token_ids, row.loss_mask, states, returned_ids, computed_in)
        appending = asyncio.ensure_future(asyncio.to_thread(self._writer.append, stored, durable))
        try:
            await asyncio.shield(appending)
        except asyncio.CancelledError:
            await asyncio.wait({appending})  # the writer is closed next, and must not be at work
            raise
        self._board.stored(row.tokens, self._layout.row_bytes(row.tokens))

    def has_given_up(self, row: Row) -> bool:
        """Whether this run has quarantined a row, whichever worker and start did."""
        return row.facts.key in self._quarantine.rows

    async def give_up(self, row: Row, reason: str, message: str, tries: int) -> None:
        """Quarantines a row.

        Raises:
            JobRefusedError: More than 1 % of the run's rows are there now.
            JobFailedError: The disk does not take it.
        """
        log.warning("row %s is quarantined after %d tries: %s: %s", row, tries, reason, message)
        await asyncio.to_thread(self._quarantine.add, row, reason, message, tries)
        self._board.quarantined += 1
        check_share(self._quarantine.rows.values(), self._total)
