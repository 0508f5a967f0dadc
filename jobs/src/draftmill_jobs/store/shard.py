"""The open shard: rows that are durable before the shard has a header.

    states-w0-3.safetensors.partial    room for the header, then the rows' blocks
    states-w0-3.journal                a line for each row whose block is durable

A block is made durable first, its journal line after it. Sealing writes masks and header, makes them durable,
renames, and makes the name durable; the rows then go to the index, and only after that the journal goes. So
at any instant each durable row is in the journal or in the index, and in both only for a moment.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from draftmill_api.store import JournalLine, StoreBinding, StoreLine
from draftmill_jobs.shared.files import AppendOnlyFile, begin_write_back, sync_folder
from draftmill_jobs.store.layout import StateLayout, shard_metadata
from draftmill_jobs.store.lines import render_lines
from draftmill_jobs.store.rows import EncodedRow
from draftmill_jobs.store.tensors import render_header

PARTIAL: Final = ".partial"
JOURNAL: Final = ".journal"
WRITE_BACK_BYTES: Final = 8 << 20
"""So many bytes at a time go to the disk while the next are copied."""


def partial_of(shard: Path) -> Path:
    """The file of a shard that is not sealed."""
    return shard.with_name(shard.name + PARTIAL)


def journal_of(shard: Path) -> Path:
    """The journal of a shard."""
    return shard.with_name(shard.name.removesuffix(".safetensors") + JOURNAL)


def shard_of(journal: Path) -> Path:
    """The shard of a journal."""
    return journal.with_suffix(".safetensors")


class OpenShard:
    """A shard that rows are written to.

    One thread may write while another makes durable what was written before; sealing needs both to rest.
    """

    def __init__(
        self, path: Path, binding: StoreBinding, *, header: int, journalled: Sequence[JournalLine] = ()
    ) -> None:
        """Goes on behind the rows that are journalled; without any, starts anew.

        Args:
            path: Name that the shard will have.
            binding: What the store is bound to.
            header: Bytes at the start that the header has room in.
            journalled: The rows that are there already.
        """
        self.path = path
        self._binding = binding
        self._layout = StateLayout.of(binding)
        self._header = header
        self._most_rows = self._layout.most_rows(header, binding)
        self._rows = [line.row for line in journalled]
        self._spans = [line.loss_spans for line in journalled]
        self._end = header + sum(self._layout.block(row.tokens).end for row in self._rows)
        self._mask_bytes = sum(row.tokens for row in self._rows)
        self._written_back = self._synced = self._end
        self._descriptor = os.open(partial_of(path), os.O_RDWR | os.O_CREAT, 0o644)
        if not self._rows:
            os.ftruncate(self._descriptor, 0)
            _write_at(self._descriptor, 0, b" " * header)
        self._journal: AppendOnlyFile | None = None  # whoever writes rows does not wait for a new one's name
        self._is_closed = False

    @property
    def rows(self) -> list[StoreLine]:
        """The rows written, durable or not, in their order."""
        return self._rows

    @property
    def bytes(self) -> int:
        """Size that the shard would have if it were sealed now."""
        return self._end + self._mask_bytes

    def is_full(self) -> bool:
        """Whether the header has no room for another row."""
        return len(self._rows) >= self._most_rows

    def write(self, row: EncodedRow) -> JournalLine:
        """Writes a row's block, not yet durably; what is returned goes to `journal` once it is.

        Raises:
            OSError: The disk does not take it.
        """
        self._copy(row.block)
        line = StoreLine(
            **dict(row.facts),
            tokens=row.tokens,
            shard=self.path.name,
            offset=self._end,
            hash=row.hash,
            float8_error=row.float8_error,
            computed_in=row.computed_in,
        )
        spans = loss_spans(row.loss_mask)
        self._end += self._layout.block(row.tokens).end
        self._mask_bytes += row.tokens
        self._rows.append(line)
        self._spans.append(spans)
        return JournalLine(row=line, loss_spans=spans)

    def sync(self) -> None:
        """Makes the blocks that were written before the call durable."""
        end = self._end
        os.fsync(self._descriptor)
        begin_write_back(self._descriptor, self._synced, end)  # of which nothing is left but to drop it
        self._synced = end

    def journal(self, lines: Sequence[JournalLine]) -> None:
        """Makes rows durable whose blocks are."""
        if self._journal is None:
            self._journal = AppendOnlyFile(journal_of(self.path))
        self._journal.append(render_lines(lines))
        self._journal.sync()

    def seal(self) -> None:
        """Makes the shard a whole safetensors file under its own name. Every row must be journalled."""
        masks = [loss_mask(spans, row.tokens) for spans, row in zip(self._spans, self._rows, strict=True)]
        _write_at(self._descriptor, self._end, b"".join(mask.data for mask in masks))
        os.ftruncate(self._descriptor, self.bytes)
        places = self._layout.places([row.tokens for row in self._rows], self._header)
        _write_at(self._descriptor, 0, render_header(places, shard_metadata(self._binding), self._header))
        os.fsync(self._descriptor)
        partial_of(self.path).rename(self.path)
        sync_folder(self.path.parent)
        self.close()

    def close(self) -> None:
        """Closes the files, if they are open."""
        if not self._is_closed:
            self._is_closed = True
            os.close(self._descriptor)
            if self._journal is not None:
                self._journal.close()

    def _copy(self, block: Sequence[memoryview]) -> None:
        """Hands a block to the system, which begins to write it to the disk meanwhile."""
        place = self._end
        for part in block:
            for start in range(0, len(part), WRITE_BACK_BYTES):
                piece = part[start : start + WRITE_BACK_BYTES]
                _write_at(self._descriptor, place, piece)
                place += len(piece)
                if place - self._written_back >= WRITE_BACK_BYTES:
                    begin_write_back(self._descriptor, self._written_back, place)
                    self._written_back = place


def loss_spans(mask: NDArray[np.uint8]) -> list[tuple[int, int]]:
    """The half-open ranges where a mask is 1."""
    edges = np.flatnonzero(np.diff(mask.astype(bool), prepend=False, append=False))
    return [(int(start), int(end)) for start, end in edges.reshape(-1, 2)]


def loss_mask(spans: Sequence[tuple[int, int]], tokens: int) -> NDArray[np.uint8]:
    """The mask `uint8[tokens]` that is 1 in these ranges."""
    mask = np.zeros(tokens, np.uint8)
    for start, end in spans:
        mask[start:end] = 1
    return mask


def _write_at(descriptor: int, offset: int, *buffers: bytes | memoryview) -> None:
    rest = [memoryview(buffer).cast("B") for buffer in buffers]
    while rest:
        written = os.pwritev(descriptor, rest, offset)
        offset += written
        while rest and written >= len(rest[0]):
            written -= len(rest.pop(0))
        if rest:
            rest[0] = rest[0][written:]
