"""The writer of a worker's shards: rows in, durable in groups.

Rows are checked and hashed in the caller's threads and written one after another; a thread of the writer
makes what was written durable and seals full shards, while further rows are being written.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from draftmill_api.jobconfig import JobRun
from draftmill_api.store import JournalLine, StoreBinding, StoreLine
from draftmill_jobs.errors import JobFailedError
from draftmill_jobs.shared.settings import Share
from draftmill_jobs.store.errors import OtherTokensError, StoreCorruptError
from draftmill_jobs.store.folder import INDEX_FILE, MANIFEST_FILE, index_part, shard_path
from draftmill_jobs.store.held import stored_ids
from draftmill_jobs.store.layout import HEADER_BYTES, StateLayout
from draftmill_jobs.store.opening import take_over
from draftmill_jobs.store.recovery import seal
from draftmill_jobs.store.rows import EncodedRow, StoreRow, encode_row
from draftmill_jobs.store.shard import OpenShard

T = TypeVar("T")

GROUP_BYTES: Final = 256 << 20
GROUP_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class _Pending:
    line: JournalLine
    durable: Callable[[], None]


@dataclass(frozen=True, slots=True)
class _Group:
    """Rows of one shard that become durable together."""

    shard: OpenShard
    rows: list[_Pending]


class StoreWriter:
    """Appends rows to a worker's part of a store. All methods may be called from any thread."""

    def __init__(
        self,
        folder: Path,
        binding: StoreBinding,
        *,
        shard_bytes: int,
        run: JobRun,
        share: Share,
        header_bytes: int = HEADER_BYTES,
        group_bytes: int = GROUP_BYTES,
        group_seconds: float = GROUP_SECONDS,
    ) -> None:
        """Takes this worker's part of the store over.

        Args:
            folder: Of the store; made when it is not there.
            binding: What every row of the store has in common.
            shard_bytes: Size that a shard reaches only with its last row, if that is a long one.
            run: The run that writes.
            share: Which worker this is.
            header_bytes: Room for a shard's header; when it is full, the shard is sealed.
            group_bytes: Bytes after which rows are made durable, and
            group_seconds: seconds after which they are in any case.

        Raises:
            JobRefusedError: The store is bound to something else, contradicts itself, or cannot be written.
            FolderInUseError: Another process is writing there.
        """
        self._folder, self._binding, self._worker = folder, binding, share.index
        self._layout = StateLayout.of(binding)
        self._shard_bytes, self._header_bytes = shard_bytes, header_bytes
        self._group_bytes, self._group_seconds = group_bytes, group_seconds
        opened = take_over(folder, binding, run=run, share=share)
        self._part_lock, self._shard, self._number = opened.lock, opened.part.open, opened.part.next_number
        self._places, self._index = opened.places, index_part(folder, share.index)
        self._appended = False
        self._full: list[_Group] = []  # shards to be sealed, with their last rows
        self._pending: list[_Pending] = []
        self._pending_bytes, self._oldest = 0, 0.0
        self._failure: JobFailedError | None = None
        self._closing = False
        self._writing = threading.Lock()  # each of the two is taken before the third
        self._committing = threading.Lock()
        self._state = threading.Condition()
        self._committer = threading.Thread(target=self._commit_groups, name="store-committer", daemon=True)
        self._committer.start()

    def holds(self, key: tuple[str, str], token_ids: NDArray[np.int32]) -> bool:
        """Whether the store has this row already, so that its states need not be asked for.

        Args:
            key: Dataset and id.
            token_ids: `int32[T]` of the row, cut as it would be stored.

        Raises:
            StoreDiffersError: It has a row of this name for other tokens.
            StoreCorruptError: Somebody has cut the row's shard.
        """
        with self._state:
            place = self._places.find(key)
        if place is None:
            return False
        found = stored_ids(self._folder, place, self._layout)
        if len(found) < place.tokens:
            raise StoreCorruptError(f"{self._folder / place.shard} ends before row {'/'.join(key)} does")
        if not np.array_equal(found, token_ids):
            raise OtherTokensError(self._folder, key)
        return True

    def append(self, row: StoreRow, durable: Callable[[], None]) -> StoreLine:
        """Checks, encodes and writes a row; on return it is written, but not yet durable.

        Args:
            row: Its arrays are not used any longer after the return.
            durable: Called once, from any thread, when the row will survive a crash. It must neither raise
                nor call the writer.

        Raises:
            RowRefusedError: Its states cannot be right; the store is as before.
            JobFailedError: The disk does not take it, or did not take one before.
            ValueError: The store has the row already.
        """
        encoded = encode_row(row, self._binding)
        with self._writing:
            with self._state:
                self._raise_failure()
                if self._places.find(row.facts.key):
                    raise ValueError(f"row {row.facts.dataset}/{row.facts.id} is in the store already")
            shard = self._shard_for(encoded)
            line = self._or_fail(lambda: shard.write(encoded))
            with self._state:
                self._note(line, encoded, durable)
        return line.row

    def flush(self) -> None:
        """Makes every row durable that was appended before the call.

        Raises:
            JobFailedError: The disk does not take it, or did not before.
        """
        with self._committing:
            with self._state:
                self._raise_failure()
                groups, seals = [*self._full], len(self._full)
                if self._shard is not None:
                    groups.append(_Group(self._shard, self._take_pending()))
            for number, group in enumerate(groups):
                if group.rows:
                    self._or_fail(partial(_commit, group))
                    _tell(group)
                if number < seals:
                    self._or_fail(partial(seal, group.shard, self._index))
                    with self._state:
                        self._full.remove(group)

    def seal(self) -> None:
        """Makes every row durable and seals the open shard: nothing is to come.

        Raises:
            JobFailedError: The disk does not take it, or did not before.
        """
        with self._writing:
            self._retire()
        self.flush()

    def close(self) -> None:
        """Makes every row durable and lets go of the store; an open shard stays open for the next start.

        Raises:
            JobFailedError: The disk does not take it, or did not before.
        """
        try:
            self.flush()
        finally:
            self._let_go()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._failure is None:
            self.close()
        else:
            self._let_go()

    def _let_go(self) -> None:
        with self._state:
            self._closing = True
            self._state.notify_all()
        self._committer.join()
        for shard in (*(group.shard for group in self._full), self._shard):
            if shard is not None:
                shard.close()
        self._part_lock.release()

    def _shard_for(self, row: EncodedRow) -> OpenShard:
        """The open shard, another one if that has no room."""
        if not self._appended:
            self._appended = True
            for name in (MANIFEST_FILE, INDEX_FILE):  # they tell of a store that was complete
                (self._folder / name).unlink(missing_ok=True)
        if self._shard is not None and self._is_full_for(self._shard, self._layout.row_bytes(row.tokens)):
            self._retire()
        if self._shard is None:
            path = shard_path(self._folder, self._worker, self._number)
            self._number += 1
            self._shard = self._or_fail(lambda: OpenShard(path, self._binding, header=self._header_bytes))
        return self._shard

    def _is_full_for(self, shard: OpenShard, size: int) -> bool:
        return bool(shard.rows) and (shard.is_full() or shard.bytes + size > self._shard_bytes)

    def _retire(self) -> None:
        """Nothing more is written to the open shard; it is sealed with the next group."""
        with self._state:
            if self._shard is not None:
                self._full.append(_Group(self._shard, self._take_pending()))
                self._shard = None
                self._state.notify_all()

    def _note(self, line: JournalLine, row: EncodedRow, durable: Callable[[], None]) -> None:
        self._places.add(line.row)
        if not self._pending:
            self._oldest = time.monotonic()
        self._pending.append(_Pending(line, durable))
        self._pending_bytes += self._layout.row_bytes(row.tokens)
        self._state.notify_all()

    def _take_pending(self) -> list[_Pending]:
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        return pending

    def _commit_groups(self) -> None:
        while True:
            with self._state:
                self._state.wait_for(lambda: bool(self._pending or self._full) or self._closing)
                if self._closing:
                    return
                left = self._oldest + self._group_seconds - time.monotonic()
                self._state.wait_for(self._has_enough, max(0.0, left))
            try:
                self.flush()
            except JobFailedError:
                return  # whoever appends or flushes next is told

    def _has_enough(self) -> bool:
        return self._closing or bool(self._full) or self._pending_bytes >= self._group_bytes

    def _or_fail(self, act: Callable[[], T]) -> T:
        try:
            return act()
        except OSError as error:
            where = error.filename or self._folder
            self._failure = JobFailedError("StorageFailed", f"cannot write {where}: {error}")
            raise self._failure from error

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise JobFailedError(self._failure.reason, self._failure.message) from self._failure


def _commit(group: _Group) -> None:
    group.shard.sync()
    group.shard.journal([each.line for each in group.rows])


def _tell(group: _Group) -> None:
    for each in group.rows:
        each.durable()
