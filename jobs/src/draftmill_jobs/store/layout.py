"""How rows lie in a shard: sizes, offsets and the shard's header. Pure arithmetic.

A shard is a safetensors file. Behind its header stand the rows' blocks, one after another, each being
`<i>.states`, with Float8 `<i>.scale`, and `<i>.token_ids`. Behind the last block stand all `<i>.loss_mask`:
of one byte for each token, they would leave the states of the next row at an odd address. So every tensor
lies at a multiple of its item size, and can be used where it is mapped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from draftmill_api.store import StoreBinding
from draftmill_api.v1alpha1.extractrun import StateDtype
from draftmill_jobs.store.tensors import LENGTH_BYTES, TensorPlace, render_header

ITEM_BYTES: Final = {StateDtype.BFLOAT16: 2, StateDtype.FLOAT32: 4, StateDtype.FLOAT8: 1}
TENSOR_DTYPES: Final = {StateDtype.BFLOAT16: "BF16", StateDtype.FLOAT32: "F32", StateDtype.FLOAT8: "F8_E4M3"}
TOKEN_ID_BYTES: Final = 4
SCALE_BYTES: Final = 4
HEADER_BYTES: Final = 1 << 20
"""Room at the start of a shard, the eight bytes of its length included: some 3,000 rows."""

_WIDEST = (1 << 53) - 1  # no offset or length is longer in decimal digits


@dataclass(frozen=True, slots=True)
class BlockPlaces:
    """Where a row's block has its parts, in bytes from the block's start."""

    scale: int
    token_ids: int
    end: int


@dataclass(frozen=True, slots=True)
class StateLayout:
    """The shape of every row in a store: `[T, states, hidden]` of one dtype."""

    states: int
    hidden_size: int
    dtype: StateDtype

    @classmethod
    def of(cls, binding: StoreBinding) -> StateLayout:
        """The layout of a store.

        Raises:
            ValueError: Its rows would not lie at multiples of four bytes.
        """
        layout = cls(len(binding.layer_ids), binding.hidden_size, binding.dtype)
        if layout.token_bytes % TOKEN_ID_BYTES:
            raise ValueError(
                f"{layout.states} states of {layout.hidden_size} {layout.dtype} are {layout.token_bytes} "
                "bytes for each token; a store needs a multiple of 4: choose another dtype"
            )
        return layout

    @property
    def has_scale(self) -> bool:
        """Whether a float32 scale belongs to each (token, layer)."""
        return self.dtype is StateDtype.FLOAT8

    @property
    def parts(self) -> tuple[str, ...]:
        """What a row's tensors are called, behind its number and a dot."""
        return ("states", *(("scale",) if self.has_scale else ()), "token_ids", "loss_mask")

    @property
    def token_bytes(self) -> int:
        """Bytes of one token's states alone."""
        return self.states * self.hidden_size * ITEM_BYTES[self.dtype]

    def block(self, tokens: int) -> BlockPlaces:
        """Where the parts of a row's block are."""
        scale = tokens * self.token_bytes
        token_ids = scale + (tokens * self.states * SCALE_BYTES if self.has_scale else 0)
        return BlockPlaces(scale, token_ids, token_ids + tokens * TOKEN_ID_BYTES)

    def row_bytes(self, tokens: int) -> int:
        """All bytes of a row: its block and its loss mask."""
        return self.block(tokens).end + tokens

    def places(self, lengths: Sequence[int], header: int) -> dict[str, TensorPlace]:
        """Every tensor of a shard whose rows have so many tokens, by name."""
        places: dict[str, TensorPlace] = {}
        start, shape = header, (self.states, self.hidden_size)
        for index, tokens in enumerate(lengths):
            block = self.block(tokens)
            scale, ids, end = start + block.scale, start + block.token_ids, start + block.end
            places[f"{index}.states"] = TensorPlace(TENSOR_DTYPES[self.dtype], (tokens, *shape), start, scale)
            if self.has_scale:
                places[f"{index}.scale"] = TensorPlace("F32", (tokens, self.states), scale, ids)
            places[f"{index}.token_ids"] = TensorPlace("I32", (tokens,), ids, end)
            start = end
        for index, tokens in enumerate(lengths):
            places[f"{index}.loss_mask"] = TensorPlace("U8", (tokens,), start, start + tokens)
            start += tokens
        return places

    def most_rows(self, header: int, binding: StoreBinding) -> int:
        """So many rows surely fit into a header of that many bytes.

        Raises:
            ValueError: Not even one does.
        """
        base = len(render_header({}, shard_metadata(binding), header).rstrip())
        widest = TensorPlace("F8_E4M3", (_WIDEST, _WIDEST, _WIDEST), _WIDEST, _WIDEST)
        row = {f"{1 << 30}.{part}": widest for part in self.parts}
        room = LENGTH_BYTES + 4096
        each = len(render_header(row, {}, room).rstrip()) - len(render_header({}, {}, room).rstrip())
        if (rows := (header - base) // each) < 1:
            raise ValueError(f"a header of {header} bytes has no room for one row")
        return rows


def shard_metadata(binding: StoreBinding) -> dict[str, str]:
    """What a shard says of itself to a reader that has only this file."""
    return {
        "format": "pt",
        "layer_ids": " ".join(map(str, binding.layer_ids)),
        "layer_convention": binding.layer_convention,
        "last_state": "pre-norm",
        "model_fingerprint": binding.model_fingerprint,
    }


def shard_name(worker: int, number: int) -> str:
    """The name of a worker's n-th shard."""
    return f"states-w{worker}-{number}.safetensors"
