"""`draftmill resume`: a suspended or paused run goes on."""

from __future__ import annotations

from argparse import Namespace
from datetime import UTC, datetime
from typing import Any

from draftmill_api.v1alpha1.status import Phase
from draftmill_cli.cluster import connect
from draftmill_cli.errors import CliError
from draftmill_cli.kinds import AnyRun
from draftmill_cli.view import phase_of


def run(args: Namespace) -> int:
    """Takes back `spec.suspend`, or gives a paused run another `spec.resumeToken`."""
    cluster = connect(args)
    name = cluster.find(args.name)
    cluster.change(name, change_for(cluster.run(name), datetime.now(UTC)))
    print(f"{cluster.title(name)} goes on; `draftmill watch {args.name}` follows it.")
    return 0


def change_for(run: AnyRun, now: datetime) -> dict[str, Any]:
    """The change of the spec that lets the run go on.

    Raises:
        CliError: Nothing holds it up.
    """
    if run.spec.suspend:
        return {"suspend": False}
    phase = phase_of(run)
    if phase is Phase.PAUSED:
        return {"resumeToken": new_word(now)}
    raise CliError(f"{run.metadata['name']} is {phase}: there is nothing to resume")


def new_word(now: datetime) -> str:
    """A word that was not there before."""
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")
