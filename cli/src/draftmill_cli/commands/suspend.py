"""`draftmill suspend`: a run gives back everything it holds, and keeps its files."""

from __future__ import annotations

from argparse import Namespace

from draftmill_cli.cluster import connect
from draftmill_cli.errors import CliError
from draftmill_cli.view import phase_of


def run(args: Namespace) -> int:
    """Sets `spec.suspend`."""
    cluster = connect(args)
    name = cluster.find(args.name)
    found = cluster.run(name)
    if found.status is not None and found.status.completion_time is not None:
        raise CliError(f"{args.name} is {phase_of(found)}: it holds nothing that could be given back")
    cluster.change(name, {"suspend": True})
    print(f"{cluster.title(name)} stops; `draftmill resume {args.name}` lets it go on from what is on disk.")
    return 0
