"""What a person sees while the worker runs: a bar on a terminal, else lines in the log."""

from __future__ import annotations

import io
import logging
import re
import sys

import pytest

from draftmill_api.progress import WorkerState
from draftmill_api.record import RecordStatus
from draftmill_jobs.generate.board import Board
from draftmill_jobs.generate.reporting import reporter
from draftmill_jobs.shared.tally import Tally

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal(io.StringIO):
    """Standard error that says that it is a terminal."""

    def isatty(self) -> bool:
        return True

    @property
    def words(self) -> str:
        """What was written, without colours and movements."""
        return CONTROL.sub("", self.getvalue())


def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Called within a test: pytest puts its own standard error in place after the fixtures."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    return terminal


def board(message: str = "") -> Board:
    return Board("", "0/1", 1, 0.0, "", WorkerState.RUNNING, message, tallies=[Tally("A", 4)])


def test_a_terminal_has_a_bar_that_ends_with_the_counts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    terminal = on_a_terminal(monkeypatch)
    caplog.set_level(logging.INFO)
    seen = board()
    with reporter(seen, lambda: 10.0) as shown:
        for _ in range(3):
            seen.tallies[0].add_record(RecordStatus.OK, "stop", 16)
            shown.settled()
        seen.tallies[0].errors += 1
        shown.tick()
    assert terminal.words.rstrip().splitlines()[-1].split("━ ")[-1].startswith("3/4, 1 errors, 0 req/s")
    assert "━" * 16 in terminal.words, "the bar is full: every row is accounted for"
    assert caplog.records == []


def test_the_bar_says_what_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_a_terminal(monkeypatch)
    with reporter(board("waiting for endpoints: s0: refused"), lambda: 10.0) as shown:
        shown.show()
    assert "waiting for endpoints: s0: refused" in terminal.words


def test_without_a_terminal_the_line_comes_every_ten_seconds_and_hundred_records(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    seen, now = board(), 0.0
    with reporter(seen, lambda: now) as shown:
        shown.tick()
        now = 9.9
        shown.tick()
        assert caplog.records == []
        now = 10.0
        shown.tick()
        assert len(caplog.records) == 1
        for _ in range(200):
            seen.tallies[0].add_record(RecordStatus.OK, "stop", 16)
            shown.settled()
    assert [record.getMessage().split(" (")[0] for record in caplog.records] == [
        "Progress: 0/4",
        "Progress: 100/4",
        "Progress: 200/4",
    ]
