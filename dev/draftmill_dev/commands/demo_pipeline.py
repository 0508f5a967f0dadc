"""`demo-pipeline`: three runs, from prompts to a drafter that is measured at work."""

from __future__ import annotations

import argparse

from draftmill_dev import cluster
from draftmill_dev.demo import local, pipeline


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags."""
    parser.add_argument(
        "--name", default=cluster.DEFAULT_NAME, help="name of its own cluster (default: %(default)s)"
    )
    parser.add_argument(
        "--rows",
        type=int,
        default=pipeline.ROWS,
        help="prompts in each of its two datasets (default: %(default)s)",
    )


def run(options: argparse.Namespace) -> None:
    """Runs it on a cluster of its own."""
    local.main_pipeline(options.name, options.rows)
