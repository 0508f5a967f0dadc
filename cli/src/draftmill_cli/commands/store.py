"""`draftmill store`: a store of hidden states, looked at by people and scripts."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from draftmill_cli.arguments import SPECULATORS
from draftmill_cli.console import show
from draftmill_cli.errors import CliError
from draftmill_cli.states import facts_table, kinds_table, rows_table
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.store import Check, Store, audit_store
from draftmill_jobs.store.folder import MANIFEST_FILE
from draftmill_jobs.store.reader import read_manifest


def run(args: Namespace) -> int:
    """Does one of `verify`, `stat`, `head` and `export`.

    Raises:
        CliError: It is no store, or not a whole one.
    """
    try:
        return _ACTIONS[args.action](args)
    except JobRefusedError as error:
        raise CliError(error.message) from error


def _verify(args: Namespace) -> int:
    audit = audit_store(args.folder, only_headers=args.headers)
    faults = [*audit.faults, *([] if args.incomplete else _incomplete(args.folder))]
    looked = "headers" if args.headers else "every byte"
    show(f"{len(audit.rows):,} rows in {len({row.shard for row in audit.rows}):,} shards, {looked} read")
    show(*faults)
    count = len(faults)
    show(f"Not well: {count} {'fault' if count == 1 else 'faults'}." if count else "All is well.")
    return 1 if count else 0


def _incomplete(folder: Path) -> Iterator[str]:
    """What a store lacks whose run has not been finished, whole though its shards may be."""
    if read_manifest(folder) is None:
        yield (
            f"{MANIFEST_FILE}: missing, so the store is not complete: rows may be missing, and those of open "
            "shards are not counted; --incomplete looks at what is there"
        )


def _stat(args: Namespace) -> int:
    with Store.open(args.folder, check=Check.HEADERS) as store:
        show(facts_table(store), kinds_table(store.lines))
    return 0


def _head(args: Namespace) -> int:
    with Store.open(args.folder, check=Check.HEADERS) as store:
        show(rows_table(store.in_order(range(min(args.count, len(store)))), store.binding))
    return 0


def _export(args: Namespace) -> int:
    output: Path = args.output
    if output.exists() and any(output.iterdir()):
        raise CliError(f"{output} is not empty: choose another --output")
    try:
        from draftmill_jobs.store import export  # noqa: PLC0415 - the others do without torch
    except ModuleNotFoundError as error:
        raise CliError(f"export needs {error.name}: pip install 'draftmill[train]'") from error
    with Store.open(args.folder, check=Check.HASHES) as store:
        if args.format == SPECULATORS:
            export.export_to_speculators(store, output)
        elif args.model is None:
            raise CliError("SpecForge reads the last state after the final norm: give the target's --model")
        else:
            export.export_to_specforge(store, output, export.final_norm_of(store, args.model))
        show(f"{len(store):,} rows in {output}")
    return 0


_ACTIONS: Final[dict[str, Callable[[Namespace], int]]] = {
    "verify": _verify,
    "stat": _stat,
    "head": _head,
    "export": _export,
}
