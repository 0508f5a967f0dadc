"""`draftmill logs`: the log of the pod that works for a run now."""

from __future__ import annotations

import sys
from argparse import Namespace

from draftmill_cli.cluster import connect
from draftmill_cli.errors import CliError
from draftmill_cli.view import line


def run(args: Namespace) -> int:
    """Prints the log of the run's youngest pod of a role."""
    cluster = connect(args)
    state = cluster.run(cluster.find(args.name))
    pod = cluster.newest_pod(state, args.of)
    if pod is None:
        raise CliError(f"{args.name} has no {args.of} pod now. {line(state)}")
    for text in cluster.log(pod, args.of, follow=args.follow, tail=args.tail):
        sys.stdout.write(text)
        sys.stdout.flush()
    return 0
