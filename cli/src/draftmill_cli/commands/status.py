"""`draftmill status`: everything about one run on one screen."""

from __future__ import annotations

from argparse import Namespace
from datetime import UTC, datetime

from draftmill_cli.cluster import connect
from draftmill_cli.console import show
from draftmill_cli.view import report


def run(args: Namespace) -> int:
    """Prints the run's report once."""
    cluster = connect(args)
    show(report(cluster.run(cluster.find(args.name)), datetime.now(UTC)))
    return 0
