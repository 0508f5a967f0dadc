"""`python3 -m draftmill_dev <command>`: what the Makefile calls."""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import Protocol, cast

from draftmill_dev import console
from draftmill_dev.errors import DevError

COMMANDS = {
    "cluster-up": ("draftmill_dev.commands.cluster_up", "start the local Kubernetes, or repair it"),
    "cluster-down": ("draftmill_dev.commands.cluster_down", "stop the local Kubernetes"),
    "cluster-status": ("draftmill_dev.commands.cluster_status", "say what runs"),
    "demo": ("draftmill_dev.commands.demo", "a SynthRun from kubectl apply to a finished dataset"),
    "demo-pipeline": (
        "draftmill_dev.commands.demo_pipeline",
        "three runs from prompts to a drafter that is measured at work",
    ),
    "images": ("draftmill_dev.commands.images", "build the container images"),
    "requirements": ("draftmill_dev.commands.requirements", "resolve the requirement files anew"),
    "venv": ("draftmill_dev.commands.venv", "make .venv for tests and tools"),
}


class Command(Protocol):
    """A module in `draftmill_dev.commands`."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declares the command's flags."""

    def run(self, options: argparse.Namespace) -> None:
        """Does it; raises DevError when something stands in the way."""


def main(arguments: list[str]) -> int:
    """Runs one command and returns the exit code: 1, with a sentence, for what people can mend."""
    parser = argparse.ArgumentParser(prog="draftmill_dev", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    chosen = next((word for word in arguments if word in COMMANDS), None)
    for name, (module, summary) in COMMANDS.items():
        subparser = commands.add_parser(name, help=summary, description=summary)
        if name == chosen:
            command = cast(Command, importlib.import_module(module))
            command.add_arguments(subparser)
            subparser.set_defaults(run=command.run)
    options = parser.parse_args(arguments)
    try:
        options.run(options)
    except DevError as error:
        console.say(f"\n{error}")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
