"""Reading a store: rows in any order, where they are mapped.

    with Store.open(folder, check=Check.HASHES) as store:
        row = store[17]
        states = row.states()          # torch [T, states, hidden], no copy

Only sealed shards are read, so a store can be read while its workers write on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from mmap import mmap
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from draftmill_api.store import StoreBinding, StoreLine, StoreManifest
from draftmill_api.v1alpha1.extractrun import StateDtype
from draftmill_jobs.store import float8
from draftmill_jobs.store.checks import StateArray
from draftmill_jobs.store.errors import StoreCorruptError
from draftmill_jobs.store.folder import MANIFEST_FILE, read_store_file
from draftmill_jobs.store.index import read_index
from draftmill_jobs.store.layout import StateLayout
from draftmill_jobs.store.mapping import MappedShard
from draftmill_jobs.store.values import to_float32
from draftmill_jobs.store.verify import by_shard, hash_faults, header_faults

if TYPE_CHECKING:
    import torch


_TORCH_NAMES: Final = {
    StateDtype.BFLOAT16: "bfloat16",
    StateDtype.FLOAT32: "float32",
    StateDtype.FLOAT8: "float8_e4m3fn",
}


class Check(StrEnum):
    """How closely a store is looked at when it is opened."""

    HEADERS = "headers"
    """Every shard has its size and the tensors that the index names: no data is read."""
    HASHES = "hashes"
    """The hash of every row as well: all data is read once."""


class Row:
    """A row where it is mapped."""

    __slots__ = ("_layout", "_mask_at", "_memory", "line")

    def __init__(self, line: StoreLine, memory: mmap, mask_at: int, layout: StateLayout) -> None:
        """The row of an index line, whose loss mask begins at a byte of its own."""
        self.line = line
        self._memory, self._mask_at, self._layout = memory, mask_at, layout

    @property
    def token_ids(self) -> NDArray[np.int32]:
        """`int32[T]`; no copy."""
        place = self.line.offset + self._layout.block(self.line.tokens).token_ids
        return np.ndarray((self.line.tokens,), np.int32, self._memory, place)

    @property
    def loss_mask(self) -> NDArray[np.uint8]:
        """`uint8[T]`; no copy."""
        return np.ndarray((self.line.tokens,), np.uint8, self._memory, self._mask_at)

    def states(self) -> torch.Tensor:
        """The states `[T, states, hidden]` as they are stored: bfloat16, float32 or float8_e4m3fn; no copy.

        With Float8 a value is this times `scale`.
        """
        import torch  # noqa: PLC0415 - the writer's side runs without it

        layout, tokens = self._layout, self.line.tokens
        flat = torch.frombuffer(
            self._memory,
            dtype=getattr(torch, _TORCH_NAMES[layout.dtype]),
            count=tokens * layout.states * layout.hidden_size,
            offset=self.line.offset,
        )
        return flat.view(tokens, layout.states, layout.hidden_size)

    def bits(self) -> NDArray[np.uint16] | NDArray[np.float32] | NDArray[np.uint8]:
        """The states `[T, states, hidden]` for numpy: bfloat16 as uint16, Float8 as uint8 codes; no copy."""
        dtypes = {StateDtype.BFLOAT16: np.uint16, StateDtype.FLOAT32: np.float32, StateDtype.FLOAT8: np.uint8}
        shape = (self.line.tokens, self._layout.states, self._layout.hidden_size)
        array: NDArray[np.uint16] | NDArray[np.float32] | NDArray[np.uint8] = np.ndarray(
            shape, dtypes[self._layout.dtype], self._memory, self.line.offset
        )
        return array

    def scale(self) -> NDArray[np.float32]:
        """The scale `float32[T, states]` of a Float8 store; no copy.

        Raises:
            ValueError: The store is of another dtype.
        """
        if not self._layout.has_scale:
            raise ValueError(f"a {self._layout.dtype} store has no scale")
        place = self.line.offset + self._layout.block(self.line.tokens).scale
        return np.ndarray((self.line.tokens, self._layout.states), np.float32, self._memory, place)

    def values(self) -> NDArray[np.float32]:
        """The states' values `float32[T, states, hidden]`."""
        bits = self.bits()
        if bits.itemsize == 1:
            return float8.decode(bits.view(np.uint8), self.scale())
        stored: StateArray = bits.view(np.uint16) if bits.itemsize == 2 else bits.view(np.float32)
        return to_float32(stored)


class Store:
    """The rows of a store, in the order of shards and offsets."""

    def __init__(self, folder: Path, binding: StoreBinding, lines: Sequence[StoreLine]) -> None:
        """Maps the shards; `open` also checks them."""
        self.folder, self.binding, self.lines = folder, binding, lines
        self._layout = StateLayout.of(binding)
        self._maps: list[mmap] = []
        self._mask_places: list[int] = []
        for shard, rows in by_shard(lines).items():
            mapped = MappedShard(folder / shard)
            self._maps += [mapped.memory] * len(rows)
            self._mask_places += [mapped.places[f"{row}.loss_mask"].begin for row in range(len(rows))]

    @classmethod
    def open(cls, folder: Path, *, check: Check, threads: int = 4) -> Store:
        """Opens a store and checks it.

        Args:
            folder: Of the store.
            check: How closely.
            threads: How many shards are hashed at once.

        Raises:
            StoreCorruptError: It is no store, or not what its index says; the message names shard and row.
        """
        bound = read_store_file(folder)
        if bound is None:
            raise StoreCorruptError(f"there is no store in {folder}")
        lines = read_index(folder)
        _check(folder, lines, StateLayout.of(bound.binding), check, threads)
        return cls(folder, bound.binding, lines)

    @property
    def manifest(self) -> StoreManifest | None:
        """What the store is made of; None while it is not complete.

        Raises:
            StoreCorruptError: It cannot be read.
        """
        return read_manifest(self.folder)

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, index: int) -> Row:
        return Row(self.lines[index], self._maps[index], self._mask_places[index], self._layout)

    def __iter__(self) -> Iterator[Row]:
        return self.in_order(range(len(self)))

    def in_order(self, order: Iterable[int]) -> Iterator[Row]:
        """The rows at these indices, one after another."""
        return (self[index] for index in order)

    def close(self) -> None:
        """Lets go of the shards: each is unmapped when the last array or tensor of it goes."""
        self._maps.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_manifest(folder: Path) -> StoreManifest | None:
    """The manifest of a store; None while it is not complete.

    Raises:
        StoreCorruptError: It cannot be read.
    """
    path = folder / MANIFEST_FILE
    if not path.exists():
        return None
    try:
        return StoreManifest.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise StoreCorruptError(f"{path} is no manifest of this version: {error}") from error


def _check(folder: Path, lines: Sequence[StoreLine], layout: StateLayout, check: Check, threads: int) -> None:
    shards = by_shard(lines)

    def first_fault(shard: str) -> str | None:
        path, rows = folder / shard, shards[shard]
        found = next(header_faults(path, rows, layout), None)
        if found is None and check is Check.HASHES:
            found = next(hash_faults(path, rows, layout), None)
        return found

    with ThreadPoolExecutor(threads) as pool:
        for fault in pool.map(first_fault, shards):
            if fault is not None:
                pool.shutdown(cancel_futures=True)
                raise StoreCorruptError(f"{folder}: {fault}")
