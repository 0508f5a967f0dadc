"""`draftmill restart`: the workers of an active run start anew, from the records on disk."""

from __future__ import annotations

from argparse import Namespace
from datetime import UTC, datetime

from draftmill_cli.cluster import connect
from draftmill_cli.commands.resume import new_word
from draftmill_cli.errors import CliError
from draftmill_cli.view import phase_of


def run(args: Namespace) -> int:
    """Gives the run another `spec.restart`."""
    cluster = connect(args)
    name = cluster.find(args.name)
    found = cluster.run(name)
    if found.status is not None and found.status.completion_time is not None:
        raise CliError(
            f"{args.name} is {phase_of(found)}: a Failed run is run again by `draftmill retry {args.name}`"
        )
    cluster.change(name, {"restart": new_word(datetime.now(UTC))})
    print(
        f"The workers of {cluster.title(name)} start anew, and try rows again that failed "
        "in a way that may pass."
    )
    return 0
