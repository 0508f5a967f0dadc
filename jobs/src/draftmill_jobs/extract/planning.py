"""The look at model, records and room before any server is started."""

from __future__ import annotations

import logging
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from draftmill_api.base import bytes_of
from draftmill_api.extractjob import ExtractJobConfig
from draftmill_api.v1alpha1.extractrun import Backend
from draftmill_api.v1alpha1.extractstatus import ExtractPlan
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.extract.preparing import Prepared, prepare
from draftmill_jobs.extract.records import Row
from draftmill_jobs.extract.selection import Survey
from draftmill_jobs.extract.transformers_backend import check_torch
from draftmill_jobs.model.facts import read_model
from draftmill_jobs.plan.download import download_model
from draftmill_jobs.shared.formats import byte_size
from draftmill_jobs.shared.settings import Share
from draftmill_jobs.shared.write_test import try_to_write
from draftmill_jobs.store.errors import OtherTokensError
from draftmill_jobs.store.folder import check_same, index_parts, read_store_file
from draftmill_jobs.store.held import UnclaimedRows, stored_ids
from draftmill_jobs.store.layout import HEADER_BYTES, SCALE_BYTES, TOKEN_ID_BYTES, StateLayout
from draftmill_jobs.store.verify import check_sealed

log = logging.getLogger(__name__)

_INDEX_BYTES: Final = 1000  # of a row: its lines in the merged index, in the worker's and in the journal
_WHOLE: Final = Share(0, 1)


@dataclass(frozen=True, slots=True)
class StoreSize:
    """Bytes of a store: `states` alone; `other` for scales, token ids, loss masks, headers and index."""

    states: int
    other: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.states + self.other

    def describe(self, layout: StateLayout, tokens: int) -> str:
        """What takes how much."""
        return (
            f"{byte_size(self.states)} for {layout.states} states of {layout.hidden_size} {layout.dtype} for "
            f"each of {tokens} tokens, and {byte_size(self.other)} for ids, masks and index"
        )


def store_size(layout: StateLayout, *, rows: int, tokens: int, shard_bytes: int) -> StoreSize:
    """The size of a store of so many rows and tokens."""
    states = tokens * layout.token_bytes
    scales = layout.states * SCALE_BYTES if layout.has_scale else 0
    headers = HEADER_BYTES * (1 + states // shard_bytes)
    return StoreSize(states, tokens * (scales + TOKEN_ID_BYTES + 1) + rows * _INDEX_BYTES + headers)


def plan(config: ExtractJobConfig) -> ExtractPlan:
    """Looks at everything a run needs.

    Raises:
        JobRefusedError: Something is missing, cannot be used, or does not fit.
    """
    if config.backend is Backend.TRANSFORMERS:
        check_torch()
    output = Path(config.output.path)
    try_to_write(output)
    if config.model.hugging_face is not None:
        download_model(Path(config.model.path), config.model.hugging_face)
    prepared = prepare(config, read_model(config.model).facts)
    found = survey_plan(config, prepared)
    _check_room(output, found, prepared)
    return found


def survey_plan(config: ExtractJobConfig, prepared: Prepared) -> ExtractPlan:
    """Reads all records and says what they make.

    Raises:
        JobRefusedError: The records cannot be used, there is no row among them, or the store is of others.
    """
    there = StoreBefore(prepared)
    survey, _ = prepared.input.survey(config.max_rows, share=_WHOLE, is_done=there.look_up)
    check_usable(survey, prepared)
    there.check_none_left()
    size = store_size(
        prepared.layout, rows=survey.rows, tokens=survey.tokens, shard_bytes=bytes_of(config.shard_size)
    )
    log.info(
        "%d rows, the longest of %d tokens; %d cut, %d left out; layers %s; the store takes %s",
        survey.rows,
        survey.longest_row,
        survey.cut_rows,
        survey.skipped.total,
        prepared.binding.layer_ids,
        size.describe(prepared.layout, survey.tokens),
    )
    return ExtractPlan(
        model=prepared.model,
        layer_ids=prepared.binding.layer_ids,
        rows=survey.rows,
        tokens=survey.tokens,
        longest_row=survey.longest_row,
        cut_rows=survey.cut_rows,
        cut_tokens=survey.cut_tokens,
        skipped=survey.skipped,
        state_bytes=size.states,
        other_bytes=size.other,
        bytes_free=shutil.disk_usage(prepared.folder).free,
        input_sha256=prepared.input.files.content_hash(),
    )


class StoreBefore:
    """The store as it is now: whatever is in it has to be of the rows that the run selects."""

    def __init__(self, prepared: Prepared) -> None:
        """Looks at what the store is bound to, and at its shards.

        Raises:
            JobRefusedError: It is bound to something else, or broken.
        """
        folder = prepared.folder
        self._prepared = prepared
        self._bound = read_store_file(folder)
        if self._bound is not None:
            check_same(folder, self._bound.binding, prepared.binding)
            check_sealed(folder, index_parts(folder), prepared.layout)
        self._unclaimed = UnclaimedRows(folder)

    def look_up(self, row: Row) -> bool:
        """Ticks a row of the records off; always True, for a plan has nothing to do.

        Raises:
            StoreDiffersError: The store has it for other tokens.
        """
        place = self._unclaimed.claim(row.facts.key)
        if place is not None:
            found = stored_ids(self._prepared.folder, place, self._prepared.layout)
            is_whole = len(found) == place.tokens  # else a crash has cut it, and it is asked for again
            if is_whole and not np.array_equal(found, row.token_ids):
                raise OtherTokensError(self._prepared.folder, row.facts.key)
        return True

    def check_none_left(self) -> None:
        """Refuses rows that were not ticked off: another run's, whose store would be lost.

        Raises:
            StoreDiffersError: There are some.
        """
        self._unclaimed.check_none_left(self._bound.run if self._bound is not None else None)


def check_usable(survey: Survey, prepared: Prepared) -> None:
    """Refuses records without a single row.

    Raises:
        JobRefusedError: There is none.
    """
    if not survey.rows:
        left_out = ", ".join(f"{name} {count}" for name, count in survey.skipped.to_json().items() if count)
        raise JobRefusedError(
            "NoUsableRows",
            f"no record of {prepared.input.files.folder} becomes a row: {left_out or 'the files are empty'}; "
            "check rowFilter, maxRowTokens and onLongRow",
        )


def _check_room(output: Path, found: ExtractPlan, prepared: Prepared) -> None:
    """What an earlier attempt has stored already takes no room again."""
    there = sum(path.stat().st_size for path in output.glob("states-w*") if path.is_file())
    size = StoreSize(found.state_bytes, found.other_bytes)
    if size.total - there > found.bytes_free:
        raise JobRefusedError(
            "InsufficientStorage",
            f"the store needs {byte_size(size.total - there)} more "
            f"({size.describe(prepared.layout, found.tokens)}), and {output} has "
            f"{byte_size(found.bytes_free)} free; enlarge the volume, or lower maxRows or maxRowTokens",
        )
