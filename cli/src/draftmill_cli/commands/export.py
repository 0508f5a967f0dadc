"""`draftmill export`: a drafter in the format of another project."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from draftmill_cli.console import show
from draftmill_cli.errors import CliError
from draftmill_jobs.errors import JobError
from draftmill_jobs.train.exporting import export_as_speculators


def run(args: Namespace) -> int:
    """Writes the drafter anew, and re-opens what was written.

    Raises:
        CliError: It is no drafter, or not one of the target.
    """
    output: Path = args.output
    if output.exists() and any(output.iterdir()):
        raise CliError(f"{output} is not empty: choose another --output")
    try:
        export_as_speculators(
            args.folder, args.target, output, target_name=args.target_name, draft_tokens=args.draft_tokens
        )
    except JobError as error:
        raise CliError(error.message) from error
    show(f"{output}: the drafter for `vllm serve {output}`")
    return 0
