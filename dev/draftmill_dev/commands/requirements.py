"""`requirements`: versions and hashes resolved anew."""

from __future__ import annotations

import argparse

from draftmill_dev import console, requirements


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares no flags."""


def run(options: argparse.Namespace) -> None:
    """Writes the requirement files."""
    with console.step("requirements/*.txt"):
        requirements.resolve()
