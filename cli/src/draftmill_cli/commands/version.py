"""`draftmill version`."""

from __future__ import annotations

from argparse import Namespace
from importlib.metadata import version


def run(args: Namespace) -> int:
    """Prints the version of the installed distribution."""
    del args
    print(version("draftmill"))
    return 0
