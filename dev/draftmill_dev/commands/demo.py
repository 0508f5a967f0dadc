"""`demo`: a SynthRun from `kubectl apply` to a finished dataset."""

from __future__ import annotations

import argparse

from draftmill_dev.demo import local


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares no flags."""


def run(options: argparse.Namespace) -> None:
    """Runs it on a cluster of its own."""
    local.main()
