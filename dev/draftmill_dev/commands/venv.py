"""`venv`: the environment of tests and tools, linked as `.venv`."""

from __future__ import annotations

import argparse

from draftmill_dev import console, venvs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares no flags."""


def run(options: argparse.Namespace) -> None:
    """Makes it when it is not there yet."""
    if not venvs.is_made():
        with console.step("Tools for this checkout (.venv)"):
            venvs.development()
