"""Keeping the cap where `concurrency: Auto` wants it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Final

from draftmill_api.v1alpha1.status import ChosenConcurrency
from draftmill_jobs.generate.board import Board
from draftmill_jobs.generate.endpoints import EndpointPool, EndpointState
from draftmill_jobs.generate.knee import MOST, START, Knee, Sample
from draftmill_jobs.shared.chosen_concurrency import note_chosen
from draftmill_jobs.shared.storage import until_room

log = logging.getLogger(__name__)

_LOOK: Final = 1.0  # seconds between looks


class Tuner:
    """Looks at the servers and moves the cap while it is to be found; with other servers it begins anew."""

    def __init__(self, pool: EndpointPool, board: Board, output: Path, use: Callable[[int], None]) -> None:
        """Takes the run's folder, to note there what is found, and what puts another cap in force."""
        self._pool = pool
        self._board = board
        self._output = output
        self._use = use
        self._knee: Knee | None = None
        self._servers = 0
        self._noted: ChosenConcurrency | None = None

    async def run(self, is_auto: Callable[[], bool]) -> None:
        """Looks once a second as long as the cap is to be found; never returns.

        Raises:
            JobError: The disk does not take what was found.
        """
        while True:
            if is_auto():
                self._look()
                await self._note()
            else:
                self._knee, self._board.concurrency = None, None
            await asyncio.sleep(_LOOK)

    def _look(self) -> None:
        up = [each for each in self._pool.endpoints.values() if each.state is EndpointState.UP]
        if not up:
            return
        if self._knee is None or len(up) != self._servers:
            caps = sum(min(each.gate.limit, MOST) for each in up)
            self._knee, self._servers = Knee(START * len(up), int(min(MOST, caps))), len(up)
            self._use(self._knee.limit)
        knee, before = self._knee, self._knee.reason
        knee.observe(self._sample())
        if knee.reason != before:
            self._use(knee.limit)
            log.info("concurrency %d%s: %s", knee.limit, "" if knee.settled else ", so far", knee.reason)
        self._board.concurrency = ChosenConcurrency(
            in_force=knee.limit, settled=knee.settled, reason=knee.reason
        )

    async def _note(self) -> None:
        """Writes down what it has settled on, when that is new; on a full disk when there is room again."""
        chosen = self._board.concurrency
        if chosen is not None and chosen.settled and chosen != self._noted:
            note = partial(asyncio.to_thread, note_chosen, self._output, chosen)
            await until_room(note, lambda _: None, asyncio.Event())
            self._noted = chosen

    def _sample(self) -> Sample:
        """What the servers tell; where one does not, the tokens of the answers so far."""
        up = [each for each in self._pool.endpoints.values() if each.state is EndpointState.UP]
        told = [each.life.figures for each in up]
        figures = [each for each in told if each is not None]
        in_flight, cuts = self._pool.in_flight, sum(each.gate.generation for each in up)
        if len(figures) < len(up):
            return Sample(self._pool.clock(), in_flight, self._board.tokens, cuts=cuts)
        return Sample(
            now=fmean(each.life.figures_at for each in up),
            in_flight=in_flight,
            generated=sum(each.generated for each in figures),
            running=sum(each.requests - each.waiting for each in figures),
            waiting=sum(each.waiting for each in figures),
            preemptions=sum(each.preemptions for each in figures),
            cuts=cuts,
        )
