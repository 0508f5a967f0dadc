"""What a worker left in a store, made right again: the crash windows, one by one.

died while                    left                                    made right by
writing a block               bytes behind the last journalled row    cutting them off
writing a journal line        a torn line                             cutting it off
sealing, the next one open    two open shards                         sealing the older one
sealing, before the rename    masks, perhaps a header                 cutting them off; it is open again
sealing, after the rename     a journal beside a sealed shard         taking its rows into the index
appending to the index        the same, some rows, a torn line        cutting it off; taking in the others
removing the journal          the same, all rows                      removing it
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from draftmill_api.store import JournalLine, StoreBinding, StoreLine
from draftmill_jobs.shared.files import AppendOnlyFile, write_atomically
from draftmill_jobs.store.errors import StoreCorruptError
from draftmill_jobs.store.folder import index_part, sealed_shards, shard_numbers, shard_path
from draftmill_jobs.store.layout import HEADER_BYTES, StateLayout
from draftmill_jobs.store.lines import cut_file, cut_torn_tail, iterate_lines, read_lines, render_lines
from draftmill_jobs.store.rows import hash_of
from draftmill_jobs.store.shard import OpenShard, journal_of, loss_mask, partial_of
from draftmill_jobs.store.verify import check_sealed

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Recovered:
    """A worker's part of a store.

    Attributes:
        open: Its open shard, if it has rows.
        next_number: Of the next shard.
    """

    open: OpenShard | None
    next_number: int


def recover(folder: Path, worker: int, binding: StoreBinding) -> Recovered:
    """Makes right what the worker left. The caller has the worker's lock.

    Raises:
        StoreCorruptError: The files contradict each other in a way that no crash leaves, or a sealed shard is
            no longer whole.
        OSError: The disk does not take it.
    """
    numbers = shard_numbers(folder, worker)
    paths = [shard_path(folder, worker, number) for number in numbers]
    for path in paths:
        if path.exists():
            _complete_index(path, index_part(folder, worker))
    _clean_index(index_part(folder, worker), sealed_shards(folder))
    check_sealed(folder, [index_part(folder, worker)], StateLayout.of(binding))
    still_open = [shard for path in paths if not path.exists() and (shard := _reopen(path, binding))]
    for shard in still_open[:-1]:
        seal(shard, index_part(folder, worker))
    return Recovered(still_open[-1] if still_open else None, numbers[-1] + 1 if numbers else 0)


def seal(shard: OpenShard, index: Path) -> None:
    """Seals a shard and takes its rows into the index."""
    shard.seal()
    _append(index, shard.rows)
    journal_of(shard.path).unlink()


def _complete_index(shard: Path, index: Path) -> None:
    """A sealed shard's rows that are still in its journal alone go to the index."""
    if partial_of(shard).exists():
        raise StoreCorruptError(f"both {shard} and {partial_of(shard).name} exist")
    if not journal_of(shard).exists():
        return
    cut_torn_tail(index, StoreLine)
    keys = {row.key for row, _ in iterate_lines(index, StoreLine) if row.shard == shard.name}
    journalled = [line.row for line in read_lines(journal_of(shard), JournalLine).values]
    _append(index, [row for row in journalled if row.key not in keys])
    journal_of(shard).unlink()


def _clean_index(index: Path, sealed: set[str]) -> None:
    """Cuts a torn tail off, and takes out the rows of shards that somebody has removed."""
    cut_torn_tail(index, StoreLine)
    if lost := sum(row.shard not in sealed for row, _ in iterate_lines(index, StoreLine)):
        log.warning("%d rows were in shards that are gone: their states are asked for again", lost)
        rows = (row for row, _ in iterate_lines(index, StoreLine))
        write_atomically(index, render_lines(row for row in rows if row.shard in sealed))


def _reopen(shard: Path, binding: StoreBinding) -> OpenShard | None:
    """The open shard, cut to its last whole row; None, and no file, when it has no row."""
    partial, journal = partial_of(shard), journal_of(shard)
    lines = read_lines(journal, JournalLine)
    whole = _whole_rows(partial, lines.values, StateLayout.of(binding))
    if not whole:
        partial.unlink(missing_ok=True)
        journal.unlink(missing_ok=True)
        return None
    cut_file(journal, lines.ends[len(whole) - 1])
    last = whole[-1].row
    cut_file(partial, last.offset + StateLayout.of(binding).block(last.tokens).end)
    return OpenShard(shard, binding, header=whole[0].row.offset, journalled=whole)


def _whole_rows(partial: Path, lines: Sequence[JournalLine], layout: StateLayout) -> Sequence[JournalLine]:
    if not partial.exists():
        if lines:
            log.warning("%s is gone: the states of its %d rows are asked for again", partial, len(lines))
        return []
    end = lines[0].row.offset if lines else HEADER_BYTES
    for line in lines:
        if line.row.offset != end or line.row.shard + ".partial" != partial.name:
            raise StoreCorruptError(f"the journal of {partial} does not fit it at row {line.row.id}")
        end += layout.block(line.row.tokens).end
    while lines and not _is_whole(partial, lines[-1], layout):
        log.warning(
            "%s: row %s is not what its journal says; its states are asked for again",
            partial,
            lines[-1].row.id,
        )
        lines = lines[:-1]
    return lines


def _is_whole(partial: Path, line: JournalLine, layout: StateLayout) -> bool:
    row, size = line.row, layout.block(line.row.tokens).end
    with partial.open("rb") as file:
        file.seek(row.offset)
        block = file.read(size)
    return len(block) == size and hash_of(block, loss_mask(line.loss_spans, row.tokens).data) == row.hash


def _append(index: Path, rows: Sequence[StoreLine]) -> None:
    file = AppendOnlyFile(index)
    try:
        file.append(render_lines(rows))
        file.sync()
    finally:
        file.close()
