"""What must be known of a dataset's turns before its conversations go on: from index and files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import orjson

from draftmill_api.record import DeadLetter, Record, split_row_id
from draftmill_jobs.generate.conversations import Outcome, Row, outcome_of
from draftmill_jobs.prompts.index import PromptIndex
from draftmill_jobs.prompts.table import KEY_BYTES, RowTable
from draftmill_jobs.shared.lines import raw_lines
from draftmill_jobs.shared.parts import DEAD_LETTERS, RECORDS, ROW_ID, part_paths
from draftmill_jobs.shared.settings import Share

_BEGIN: Final = re.compile(rb'\{"id":"(' + ROW_ID.encode() + rb')"')


@dataclass(frozen=True)
class EarlierTurns:
    """The arguments of `Conversations`."""

    branches: Mapping[str, int] = field(default_factory=dict)
    outcomes: Mapping[Row, Outcome] = field(default_factory=dict)


def read_earlier_turns(folder: Path, prompts: PromptIndex, table: RowTable, share: Share) -> EarlierTurns:
    """Finds the turns that others go on from, and reads what became of those that are settled.

    Only these are held: as many as conversations were on their way when an attempt ended, and those with a
    beginning that others share.

    Args:
        folder: The dataset's folder.
        prompts: All rows.
        table: The same, with all settled rows noted.
        share: Whose conversations go on.
    """
    places = np.frombuffer(prompts.places, dtype=np.uint64)
    open_rows = table.open_rows(share)
    later = np.flatnonzero(open_rows[1:] & (places[1:] == places[:-1])) + 1
    if not len(later):
        return EarlierTurns()
    before = later - 1
    shared = before[~table.first_rows()[before]]
    needed, samples = np.nonzero(table.settled(before) & ~table.settled(later))
    wanted = {
        Row(_key(prompts, before[turn]), int(sample)) for turn, sample in zip(needed, samples, strict=True)
    }
    return EarlierTurns(
        branches=Counter(_key(prompts, row) for row in shared),
        outcomes=dict(_read(folder, wanted)) if wanted else {},
    )


def _key(prompts: PromptIndex, row: np.intp) -> str:
    start = int(row) * KEY_BYTES
    return prompts.keys[start : start + KEY_BYTES].hex()


def _read(folder: Path, wanted: set[Row]) -> Iterator[tuple[Row, Outcome]]:
    for stem, kind in ((RECORDS, Record), (DEAD_LETTERS, DeadLetter)):
        for path in part_paths(folder, stem):
            for line in raw_lines(path):
                begin = _BEGIN.match(line.raw)
                row = Row(*split_row_id(begin[1].decode())) if begin is not None else None
                if row in wanted:
                    yield row, outcome_of(kind.model_validate(orjson.loads(line.raw)))
