"""`cluster-down`: nothing runs any more; data in the volumes folder stays."""

from __future__ import annotations

import argparse

from draftmill_dev import cluster
from draftmill_dev.commands import cluster_choice


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags."""
    cluster_choice.add_arguments(parser)
    parser.add_argument("--purge", action="store_true", help="remove the volumes too, with all data in them")


def run(options: argparse.Namespace) -> None:
    """Stops the cluster."""
    cluster.down(options.name, state=options.state_dir, purge=options.purge)
