"""`draftmill convert`: the answers of a finished run as other programs read them."""

from __future__ import annotations

from argparse import Namespace

from draftmill_cli.console import show
from draftmill_cli.errors import CliError
from draftmill_jobs.convert.converting import Target, convert
from draftmill_jobs.errors import JobRefusedError


def run(args: Namespace) -> int:
    """Writes the rows, and says how many and what was left out.

    Raises:
        CliError: The run cannot be read, or the output not be written there.
    """
    try:
        converted = convert(args.folder, Target(args.to), args.output, args.dataset)
    except JobRefusedError as error:
        raise CliError(error.message) from error
    show(f"{converted.rows:,} rows in {args.output}")
    for why, count in sorted(converted.left_out.items()):
        show(f"{count:,} left out: {why}")
    return 0
