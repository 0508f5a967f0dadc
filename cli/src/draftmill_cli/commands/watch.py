"""`draftmill watch`: a run until its end; a live report on a terminal, a line for each change elsewhere."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from datetime import UTC, datetime

from rich.console import Console
from rich.live import Live

from draftmill_api.v1alpha1.status import Phase
from draftmill_cli.cluster import connect
from draftmill_cli.console import console
from draftmill_cli.kinds import AnyRun
from draftmill_cli.view import line, phase_of, report


def run(args: Namespace) -> int:
    """Follows the run; 0 when it Succeeded, 1 when it Failed."""
    cluster = connect(args)
    states = until_ended(cluster.follow(cluster.find(args.name)))
    screen = console()
    last = _live(states, screen) if screen.is_terminal else _plain(states, screen)
    return 0 if phase_of(last) is Phase.SUCCEEDED else 1


def until_ended(states: Iterator[AnyRun]) -> Iterator[AnyRun]:
    """The states up to and with the first that is final."""
    for state in states:
        yield state
        if phase_of(state) in {Phase.SUCCEEDED, Phase.FAILED}:
            return


def _live(states: Iterator[AnyRun], screen: Console) -> AnyRun:
    state = next(states)
    with Live(console=screen, get_renderable=lambda: report(state, datetime.now(UTC)), refresh_per_second=2):
        for state in states:  # noqa: B007 - the refreshing thread reads it
            pass
    return state


def _plain(states: Iterator[AnyRun], screen: Console) -> AnyRun:
    shown = ""
    for state in states:
        text = line(state)
        if text != shown:
            screen.print(f"{datetime.now(UTC):%H:%M:%S} {text}")
            shown = text
    return state
