"""`draftmill lineage`: a drafter's way back to its prompts."""

from __future__ import annotations

from argparse import Namespace

from rich.table import Table

from draftmill_cli.console import show
from draftmill_jobs.lineage import Link, trace


def run(args: Namespace) -> int:
    """Prints every artefact from drafter to answers, and where the chain breaks; 0 when it does not."""
    links = list(trace(args.folder, args.root))
    show(_table(links), _conclusion(links))
    return 1 if links[-1].fault else 0


def _table(links: list[Link]) -> Table:
    table = Table(box=None)
    for heading in ("ARTEFACT", "WHERE", "WHAT"):
        table.add_column(heading)
    for link in links:
        table.add_row(link.what, link.place, link.fault or link.facts)
    return table


def _conclusion(links: list[Link]) -> str:
    last = links[-1]
    if last.fault:
        return f"The chain breaks at the {last.what}."
    return "The chain is whole: every artefact is the one that the next was made of."
