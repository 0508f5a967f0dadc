"""Reading a folder of answers again, line by line, independently of the worker that wrote it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, assert_never

import orjson

from draftmill_api.manifest import PartFile
from draftmill_api.record import DeadLetter, Record, RecordStatus
from draftmill_jobs.finish.quality import QualityCount
from draftmill_jobs.prompts.table import RowTable, Settling
from draftmill_jobs.shared.length_bias import LengthBias, prompt_bytes
from draftmill_jobs.shared.lines import raw_lines
from draftmill_jobs.shared.parts import DEAD_LETTERS, RECORDS, is_row_id, part_paths
from draftmill_jobs.shared.settings import Share
from draftmill_jobs.shared.tally import FailureTally, Tally

_EVERYTHING: Final = Share(0, 1)
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
    failures: FailureTally
    quality: QualityCount
    bias: LengthBias
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


class _Rows:
    """Which rows have a line, and which of those are asked for."""

    def __init__(self, table: RowTable | None) -> None:
        self._table = table
        self._strangers: set[str] = set()

    def settle(self, identity: str) -> Settling:
        """Notes that a row has a line."""
        settling = Settling.STRANGER if self._table is None else self._table.settle(identity)
        if settling is not Settling.STRANGER:
            return settling
        if identity in self._strangers:
            return Settling.AGAIN
        self._strangers.add(identity)
        return Settling.FIRST if self._table is None else Settling.STRANGER


def audit_folder(folder: Path, table: RowTable | None = None) -> Audit:
    """Reads every line of a dataset's folder, checks it, and counts.

    Args:
        folder: The dataset's folder.
        table: The rows that are asked for; those that the folder settles are noted in it. All are when it
            is left out.
    """
    tally, rows = Tally(folder.name, 0), _Rows(table)
    if table is not None:
        tally.total, tally.skipped = table.total(_EVERYTHING), table.repeated(_EVERYTHING)
    audit = Audit(tally, FailureTally(), QualityCount(), LengthBias())

    def check_record(value: Any) -> str:
        record = Record.model_validate(value)
        datetime.fromisoformat(record.created)
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
        return record.id

    def count_record(value: Any) -> None:
        tally.add_record(RecordStatus(value["status"]), value["finish_reason"], value["completion_tokens"])
        audit.quality.add(value)
        audit.bias.answered(value["completion_tokens"], prompt_bytes(value["messages"]))

    def count_dead_letter(value: Any) -> None:
        tally.errors += 1
        audit.failures.add(value)
        if value.get("expected_tokens") is not None:
            audit.bias.failed(value["expected_tokens"], value["prompt_bytes"])

    def leave_record_out() -> None:
        audit.strangers += 1

    records = _Kind(check_record, count_record, leave_record_out)
    letters = _Kind(lambda value: DeadLetter.model_validate(value).id, count_dead_letter, lambda: None)
    audit.files = [_read(path, records, rows, audit) for path in part_paths(folder, RECORDS)]
    audit.dead_letters = [_read(path, letters, rows, audit) for path in part_paths(folder, DEAD_LETTERS)]
    return audit


class _Kind(NamedTuple):
    """What is done with each line of a kind of file.

    Attributes:
        check: Checks a line, and says which row it is of.
        take: Takes in the line of a row that is asked for.
        leave_out: Notes a line of a row that is not.
    """

    check: Callable[[Any], str]
    take: Callable[[Any], None]
    leave_out: Callable[[], None]


def _read(path: Path, kind: _Kind, rows: _Rows, audit: Audit) -> PartFile:
    digest, lines = hashlib.sha256(), 0
    for lines, (raw, _, _) in enumerate(raw_lines(path, digest.update), start=1):
        where = f"{path.name}, line {lines}"
        if not raw.endswith(b"\n"):
            audit.fault(f"{where} is torn: it has no end")
            continue
        try:
            value = orjson.loads(raw)
            identity = kind.check(value)
        except ValueError as error:  # of JSON, of the line's type, of its time
            audit.fault(f"{where} is not a whole line of its kind: {str(error).splitlines()[0]}")
            continue
        if not is_row_id(identity):
            audit.fault(f"{where}: {identity!r} is no id of a row")
            continue
        match rows.settle(identity):
            case Settling.FIRST:
                kind.take(value)
            case Settling.AGAIN:
                audit.fault(f"{where}: row {identity} is there twice")
            case Settling.STRANGER:
                kind.leave_out()
            case never:
                assert_never(never)
    return PartFile(
        path=f"{path.parent.name}/{path.name}",
        bytes=path.stat().st_size,
        records=lines,
        sha256=digest.hexdigest(),
    )
