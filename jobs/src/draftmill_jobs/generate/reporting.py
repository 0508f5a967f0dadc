"""Showing progress while it happens: a live bar on a terminal, else lines in the log."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from draftmill_jobs.generate.board import Board

log = logging.getLogger("draftmill.progress")

_LINE_SECONDS = 10.0
_LINE_RECORDS = 100
_WARNING_SECONDS = 60.0


class LineReporter:
    """The progress line, every 10 s and at every 100th record."""

    def __init__(self, board: Board, clock: Callable[[], float]) -> None:
        self._board = board
        self._clock = clock
        self._last = clock()

    def settled(self) -> None:
        """A row was settled."""
        if self._board.done and self._board.done % _LINE_RECORDS == 0:
            self.show()

    def tick(self) -> None:
        """A second has passed."""
        if self._clock() - self._last >= _LINE_SECONDS:
            self.show()

    def show(self) -> None:
        """Logs the line now."""
        self._last = self._clock()
        log.info(self._board.line(self._last))


class BarReporter:
    """A bar that is redrawn every second."""

    def __init__(self, board: Board, clock: Callable[[], float], bar: Progress) -> None:
        self._board = board
        self._clock = clock
        self._bar = bar
        self._task = bar.add_task("", total=None)

    def settled(self) -> None:
        """A row was settled."""

    def tick(self) -> None:
        """A second has passed."""
        self.show()

    def show(self) -> None:
        """Redraws the bar."""
        total = sum(tally.total for tally in self._board.tallies)
        accounted = sum(tally.accounted for tally in self._board.tallies)
        words = self._board.message or self._board.short_line(self._clock())
        self._bar.update(self._task, total=total or None, completed=accounted, description=words)


Reporter = LineReporter | BarReporter


@contextmanager
def reporter(board: Board, clock: Callable[[], float]) -> Iterator[Reporter]:
    """The reporter that fits where standard error goes."""
    if not sys.stderr.isatty():
        yield LineReporter(board, clock)
        return
    with Progress(BarColumn(16), TextColumn("{task.description}"), console=Console(stderr=True)) as bar:
        yield BarReporter(board, clock, bar)


async def keep_reporting(board: Board, clock: Callable[[], float], shown: Reporter) -> None:
    """Samples the rates and shows progress every second; warns, every minute, of long rows; never returns."""
    warned = clock() - _WARNING_SECONDS
    while True:
        board.sample(clock())
        shown.tick()
        if clock() - warned >= _WARNING_SECONDS and warn_of_lengths(board):
            warned = clock()
        await asyncio.sleep(1.0)


def warn_of_lengths(board: Board) -> bool:
    """Logs what is wrong with the lengths of answers; says whether anything is."""
    found = [words for words in (board.outlook.length_bias, board.outlook.lengths_fell) if words]
    for words in found:
        log.warning("%s", words)
    return bool(found)
