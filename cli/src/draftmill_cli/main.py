"""Entry point of `draftmill` and of `kubectl draftmill`."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from draftmill_cli.arguments import JOB_STEPS, parser
from draftmill_cli.errors import CliError


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; an error is one sentence on stderr and code 1."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    prog = _program_name()
    try:
        if arguments and arguments[0] in JOB_STEPS:
            return _run_job(arguments, prog)
        args = parser(prog).parse_args(arguments)
        return int(_module(args.module, args.extra).run(args))
    except CliError as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `draftmill get | head`: nobody reads on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _program_name() -> str:
    return "kubectl draftmill" if Path(sys.argv[0]).name == "kubectl-draftmill" else "draftmill"


def _run_job(arguments: list[str], prog: str) -> int:
    return int(_module("draftmill_jobs.main", "jobs").main(arguments, program=prog))


def _module(name: str, extra: str) -> ModuleType:
    """Imports the code of a command.

    Raises:
        CliError: A library of the extra that the command needs is not installed.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("draftmill"):
            raise
        raise CliError(
            f"this command needs {error.name}, which is not installed: pip install 'draftmill[{extra}]'"
        ) from error


if __name__ == "__main__":
    sys.exit(main())
