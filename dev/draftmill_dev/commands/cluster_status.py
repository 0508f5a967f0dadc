"""`cluster-status`: what runs, and whether it is healthy."""

from __future__ import annotations

import argparse

from draftmill_dev import cluster
from draftmill_dev.commands import cluster_choice


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags."""
    cluster_choice.add_arguments(parser)


def run(options: argparse.Namespace) -> None:
    """Prints the state of the cluster."""
    print(cluster.status(options.name, state=options.state_dir), end="")
