"""The flags that say which cluster a command is about."""

from __future__ import annotations

import argparse
from pathlib import Path

from draftmill_dev import cluster


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares `--name` and `--state-dir`."""
    parser.add_argument(
        "--name", default=cluster.DEFAULT_NAME, help="name of the cluster (default: %(default)s)"
    )
    parser.add_argument("--state-dir", type=Path, help=f"its folder (default: {cluster.STATES}/<name>)")
