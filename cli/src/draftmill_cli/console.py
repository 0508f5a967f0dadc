"""Where commands print: in colour on a terminal, plain lines of any length elsewhere."""

from __future__ import annotations

import sys

from rich.console import Console, RenderableType

_UNBOUNDED = 1000


def console() -> Console:
    """A console on stdout that never cuts or wraps text that goes into a pipe."""
    width = None if sys.stdout.isatty() else _UNBOUNDED
    return Console(file=sys.stdout, width=width, highlight=False, emoji=False, markup=False)


def show(*parts: RenderableType) -> None:
    """Prints something once; into a pipe without the blanks that fill up a table's last column."""
    screen = console()
    if screen.is_terminal:
        screen.print(*parts, sep="\n")
        return
    with screen.capture() as captured:
        screen.print(*parts, sep="\n")
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))
