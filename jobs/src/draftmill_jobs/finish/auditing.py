"""Reading a folder of answers again, line by line, independently of the worker that wrote it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError

from draftmill_api.manifest import PartFile
from draftmill_api.record import DeadLetter, Record
from draftmill_jobs.prompts.rows import RowTable
from draftmill_jobs.shared.lines import raw_lines
from draftmill_jobs.shared.parts import DEAD_LETTERS, RECORDS, is_row_id, part_paths
from draftmill_jobs.shared.tally import FailureTally, Tally

_SHOWN = 3  # faults that are told; the rest are counted


@dataclass
class Audit:
    """What a dataset's folder holds.

    Attributes:
        strangers: Records of rows that the config no longer asks for (a smaller limit); kept, not counted.
        faults: What is wrong, in sentences: the first few.
        fault_count: How many things are wrong.
    """

    tally: Tally
    table: RowTable
    failures: FailureTally
    files: list[PartFile] = field(default_factory=list)
    dead_letters: list[PartFile] = field(default_factory=list)
    strangers: int = 0
    faults: list[str] = field(default_factory=list)
    fault_count: int = 0

    def fault(self, sentence: str) -> None:
        """Notes that something is wrong."""
        self.fault_count += 1
        if len(self.faults) < _SHOWN:
            self.faults.append(sentence)


def audit_folder(
    folder: Path,
    *,
    total: int = 0,
    table: RowTable | None = None,
    belongs: Callable[[str], bool] | None = None,
) -> Audit:
    """Reads every line of a dataset's folder, checks it, and counts.

    Args:
        folder: The dataset's folder.
        total: Rows to account for, where they are known.
        table: Rows of the source, met; those that the folder settles are noted in it.
        belongs: Whether a row is one of the source; every row is when left out.
    """
    audit = Audit(Tally(folder.name, total), RowTable() if table is None else table, FailureTally())

    def take_record(value: Any) -> str:
        record = Record.model_validate(value)
        if record.completion_tokens != len(record.output_ids):
            audit.fault(
                f"row {record.id} states {record.completion_tokens} completion tokens "
                f"but has {len(record.output_ids)} output ids"
            )
        if record.prompt_tokens != len(record.prompt_ids):
            audit.fault(
                f"row {record.id} states {record.prompt_tokens} prompt tokens "
                f"but has {len(record.prompt_ids)} prompt ids"
            )
        if record.dataset != folder.name:
            audit.fault(f"row {record.id} is of dataset {record.dataset}, not {folder.name}")
        if belongs is None or (is_row_id(record.id) and belongs(record.id)):
            audit.tally.add_record(record.status, record.finish_reason, record.completion_tokens)
        else:
            audit.strangers += 1
        return record.id

    def take_dead_letter(value: Any) -> str:
        letter = DeadLetter.model_validate(value)
        if belongs is None or (is_row_id(letter.id) and belongs(letter.id)):
            audit.tally.errors += 1
            audit.failures.add(letter.__dict__)
        return letter.id

    audit.files = [_read(path, audit, take_record) for path in part_paths(folder, RECORDS)]
    audit.dead_letters = [_read(path, audit, take_dead_letter) for path in part_paths(folder, DEAD_LETTERS)]
    return audit


def _read(path: Path, audit: Audit, take: Callable[[Any], str]) -> PartFile:
    digest, lines = hashlib.sha256(), 0
    for lines, (raw, _, _) in enumerate(raw_lines(path, digest.update), start=1):
        where = f"{path.name}, line {lines}"
        if not raw.endswith(b"\n"):
            audit.fault(f"{where} is torn: it has no end")
            continue
        try:
            identity = take(orjson.loads(raw))
        except (orjson.JSONDecodeError, ValidationError) as error:
            audit.fault(f"{where} is not a whole line of its kind: {str(error).splitlines()[0]}")
            continue
        if not is_row_id(identity):
            audit.fault(f"{where}: {identity!r} is no id of a row")
        elif not audit.table.settle(identity):
            audit.fault(f"{where}: row {identity} is there twice")
    return PartFile(
        path=f"{path.parent.name}/{path.name}",
        bytes=path.stat().st_size,
        records=lines,
        sha256=digest.hexdigest(),
    )
