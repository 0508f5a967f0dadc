"""The rows of a store of hidden states, as the trainer reads them: cut, and compared with their hashes."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from draftmill_api.store import StoreLine
from draftmill_api.v1alpha1.extractrun import StateDtype
from draftmill_jobs.store import Check, Row, Store
from draftmill_jobs.store.rows import hash_of
from draftmill_jobs.train.data import RowCorruptError, RowInfo, TrainRow
from draftmill_jobs.train.starting import StoreShape

_GREEDY: Final = 0.0


class StoreRows:
    """A `RowSource` over a store.

    Args:
        store: Open.
        max_row_tokens: Longer rows are cut from the right, in ids, mask and states alike.
    """

    def __init__(self, store: Store, max_row_tokens: int | None) -> None:
        self._store, self._most = store, max_row_tokens

    @classmethod
    def open(cls, folder: Path, max_row_tokens: int | None) -> StoreRows:
        """Opens a store; its rows are checked as they are read.

        Raises:
            StoreCorruptError: It is no store, or a shard is not whole.
        """
        return cls(Store.open(folder, check=Check.HEADERS), max_row_tokens)

    @property
    def shape(self) -> StoreShape:
        """What the store has for each token."""
        binding = self._store.binding
        *entering, layers = binding.layer_ids
        return StoreShape(tuple(entering), binding.hidden_size, layers)

    @property
    def cut(self) -> int:
        """How many rows are longer than may be read."""
        return sum(line.tokens > self._tokens(line) for line in self._store.lines)

    @cached_property
    def rows(self) -> list[RowInfo]:
        """What there is."""
        return [
            RowInfo(
                key="/".join(line.key),
                split_key=line.split_key,
                tokens=self._tokens(line),
                greedy=line.temperature == _GREEDY,
                hash=line.hash,
            )
            for line in self._store.lines
        ]

    def answer(self, row: int) -> NDArray[np.int32]:
        """The tokens of a row's answer, without a look at its states or its hash."""
        stored = self._store[row]
        tokens = self._tokens(stored.line)
        answer: NDArray[np.int32] = stored.token_ids[:tokens][stored.loss_mask[:tokens] != 0]
        return answer

    def read(self, row: int) -> TrainRow:
        """Reads one.

        Raises:
            RowCorruptError: Its bytes have another hash than when they were written.
        """
        stored = self._store[row]
        if _hash(stored, self._store.binding.dtype) != stored.line.hash:
            raise RowCorruptError(f"{stored.line.dataset}/{stored.line.id} in {stored.line.shard}")
        tokens = self._tokens(stored.line)
        is_coded = self._store.binding.dtype is StateDtype.FLOAT8
        states = torch.from_numpy(stored.values()) if is_coded else stored.states()
        return TrainRow(stored.token_ids[:tokens], stored.loss_mask[:tokens] != 0, states[:tokens])

    def _tokens(self, line: StoreLine) -> int:
        return min(line.tokens, self._most or line.tokens)


def _hash(row: Row, dtype: StateDtype) -> str:
    scale = [row.scale()] if dtype is StateDtype.FLOAT8 else []
    parts = (row.bits(), *scale, row.token_ids, row.loss_mask)
    return hash_of(*(np.ascontiguousarray(part).data.cast("B") for part in parts))
