"""`draftmill check`: the finish step's look at the files, for people and scripts."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.table import Table

from draftmill_api.manifest import Manifest, PartFile
from draftmill_cli.console import show
from draftmill_cli.errors import CliError
from draftmill_cli.records import record_files
from draftmill_cli.view import counts_table, failures_table
from draftmill_jobs.finish.auditing import Audit, audit_folder
from draftmill_jobs.finish.finishing import most_frequent_failures
from draftmill_jobs.shared.artefacts import MANIFEST_FILE


def run(args: Namespace) -> int:
    """Reads every line, prints the counts, why rows failed, and what is wrong; 0 when nothing is."""
    folder: Path = args.folder
    folders = [files[0].parent for files in record_files(folder).values()]
    audits = [audit_folder(dataset) for dataset in folders]
    faults = [*_faults(audits), *differences(folder, audits)]
    failures = most_frequent_failures(audits)
    tables = [_table(audits), *([failures_table(failures)] if failures else [])]
    show(*tables, *faults, _verdict(_count(audits, faults)))
    return 1 if faults else 0


def differences(folder: Path, audits: list[Audit]) -> Iterator[str]:
    """In what the files are no longer those that the manifest of the run names.

    Raises:
        CliError: The manifest cannot be read.
    """
    path = folder / MANIFEST_FILE
    if not path.exists():
        return
    try:
        manifest = Manifest.model_validate(json.loads(path.read_bytes()), extra="ignore")
    except ValueError as error:
        raise CliError(f"{path} is no manifest of this version: {str(error).splitlines()[0]}") from error
    stated = _hashes(file for each in manifest.datasets for file in (*each.files, *each.dead_letters))
    found = _hashes(file for audit in audits for file in (*audit.files, *audit.dead_letters))
    for name in sorted(stated.keys() | found.keys()):
        if name not in found:
            yield f"{name}: named by {MANIFEST_FILE}, but not there"
        elif name not in stated:
            yield f"{name}: not named by {MANIFEST_FILE}"
        elif stated[name] != found[name]:
            yield f"{name}: changed since {MANIFEST_FILE} was written"


def _hashes(files: Iterable[PartFile]) -> dict[str, str]:
    return {file.path: file.sha256 for file in files}


def _faults(audits: list[Audit]) -> Iterator[str]:
    for audit in audits:
        yield from (f"{audit.tally.name}: {fault}" for fault in audit.faults)
        if hidden := audit.fault_count - len(audit.faults):
            yield f"{audit.tally.name}: {hidden} more of the kind"


def _count(audits: list[Audit], faults: list[str]) -> int:
    told = sum(len(audit.faults) + (audit.fault_count > len(audit.faults)) for audit in audits)
    return sum(audit.fault_count for audit in audits) + len(faults) - told


def _verdict(count: int) -> str:
    if count == 0:
        return "All is well."
    return f"Not well: {count} {'fault' if count == 1 else 'faults'}."


def _table(audits: list[Audit]) -> Table:
    return counts_table([audit.tally.progress() for audit in audits], of_a_run=False)
