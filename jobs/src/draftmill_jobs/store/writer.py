"""The writer of a worker's shards: rows in, durable in groups.

Rows are checked and hashed in the caller's threads and written one after another; a thread of the writer
makes what was written durable, while further rows are being written.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from draftmill_api.jobconfig import JobRun
from draftmill_api.store import JournalLine, StoreBinding, StoreLine
from draftmill_jobs.errors import JobFailedError
from draftmill_jobs.shared.settings import Share
from draftmill_jobs.store.errors import StoreDiffersError
from draftmill_jobs.store.folder import INDEX_FILE, MANIFEST_FILE, index_part, shard_path
from draftmill_jobs.store.layout import HEADER_BYTES, StateLayout
from draftmill_jobs.store.opening import take_over
from draftmill_jobs.store.places import Place
from draftmill_jobs.store.recovery import seal
from draftmill_jobs.store.rows import EncodedRow, StoreRow, encode_row
from draftmill_jobs.store.shard import OpenShard, partial_of

T = TypeVar("T")

GROUP_BYTES: Final = 64 << 20
GROUP_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class _Pending:
    line: JournalLine
    durable: Callable[[], None]


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
        self._places = opened.places
        self._appended = False
        self._pending: list[_Pending] = []
        self._pending_bytes, self._oldest = 0, 0.0
        self._failure: JobFailedError | None = None
        self._closing = False
        self._committing = threading.Lock()  # taken before the other one
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
        """
        with self._state:
            place = self._places.find(key)
        if place is None:
            return False
        if not np.array_equal(self._stored_ids(place), token_ids):
            raise StoreDiffersError(
                f"{self._folder} holds row {'/'.join(key)} for other tokens than its record has"
            )
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
        size = self._layout.row_bytes(encoded.tokens)
        while True:
            with self._state:
                self._raise_failure()
                if self._places.find(row.facts.key):
                    raise ValueError(f"row {row.facts.dataset}/{row.facts.id} is in the store already")
                shard = self._open_shard()
                if not self._is_full_for(shard, size):
                    return self._write(shard, encoded, durable)
            self._rotate(shard)

    def flush(self) -> None:
        """Makes every row durable that was appended before the call.

        Raises:
            JobFailedError: The disk does not take it, or did not before.
        """
        with self._committing:
            with self._state:
                self._raise_failure()
                pending, shard = self._take_pending(), self._shard
            if pending and shard:
                self._or_fail(lambda: _commit(shard, pending))
        _tell(pending)

    def seal(self) -> None:
        """Makes every row durable and seals the open shard: nothing is to come.

        Raises:
            JobFailedError: The disk does not take it, or did not before.
        """
        if self._shard is not None:
            self._rotate(self._shard)

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
        if self._shard is not None:
            self._shard.close()
        self._part_lock.release()

    def _open_shard(self) -> OpenShard:
        if not self._appended:
            self._appended = True
            for name in (MANIFEST_FILE, INDEX_FILE):  # they tell of a store that was complete
                (self._folder / name).unlink(missing_ok=True)
        if self._shard is None:
            path = shard_path(self._folder, self._worker, self._number)
            self._number += 1
            self._shard = self._or_fail(lambda: OpenShard(path, self._binding, header=self._header_bytes))
        return self._shard

    def _is_full_for(self, shard: OpenShard, size: int) -> bool:
        return bool(shard.rows) and (shard.is_full() or shard.bytes + size > self._shard_bytes)

    def _rotate(self, full: OpenShard) -> None:
        with self._committing, self._state:
            self._raise_failure()
            if self._shard is not full:
                return  # another thread was here before
            pending = self._take_pending()
            self._or_fail(lambda: _commit(full, pending))
            self._or_fail(lambda: seal(full, index_part(self._folder, self._worker)))
            self._shard = None
        _tell(pending)

    def _write(self, shard: OpenShard, row: EncodedRow, durable: Callable[[], None]) -> StoreLine:
        line = self._or_fail(lambda: shard.write(row))
        self._places.add(line.row)
        if not self._pending:
            self._oldest = time.monotonic()
        self._pending.append(_Pending(line, durable))
        self._pending_bytes += self._layout.row_bytes(row.tokens)
        self._state.notify_all()
        return line.row

    def _take_pending(self) -> list[_Pending]:
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        return pending

    def _commit_groups(self) -> None:
        while True:
            with self._state:
                self._state.wait_for(lambda: bool(self._pending) or self._closing)
                if self._closing:
                    return
                left = self._oldest + self._group_seconds - time.monotonic()
                self._state.wait_for(self._has_enough, max(0.0, left))
            try:
                self.flush()
            except JobFailedError:
                return  # whoever appends or flushes next is told

    def _has_enough(self) -> bool:
        return self._closing or self._pending_bytes >= self._group_bytes

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

    def _stored_ids(self, row: Place) -> NDArray[np.int32]:
        path = self._folder / row.shard
        if not path.exists():
            path = partial_of(path)
        with path.open("rb") as file:
            place = row.offset + self._layout.block(row.tokens).token_ids
            return np.frombuffer(os.pread(file.fileno(), 4 * row.tokens, place), np.int32)


def _commit(shard: OpenShard, pending: list[_Pending]) -> None:
    shard.sync()
    shard.journal([each.line for each in pending])


def _tell(pending: list[_Pending]) -> None:
    for each in pending:
        each.durable()
