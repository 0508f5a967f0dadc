"""Rows of a tensor by number, differentiable; where they follow one another nothing is copied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_EVERYTHING = slice(None)


@dataclass(frozen=True, slots=True)
class Rows:
    """Numbers of rows; none twice, where gradients come back to them.

    Attributes:
        index: int64[R].
        run: The same as a slice, when each is one more than the one before it.
    """

    index: Tensor
    run: slice | None

    @classmethod
    def of(cls, numbers: NDArray[np.int64]) -> Rows:
        """Those of an array."""
        follows = len(numbers) > 0 and bool((np.diff(numbers) == 1).all())
        run = slice(int(numbers[0]), int(numbers[-1]) + 1) if follows else None
        return cls(torch.from_numpy(numbers), run)

    def __len__(self) -> int:
        return len(self.index)

    def to(self, device: torch.device) -> Rows:
        """The same on another device."""
        return Rows(self.index.to(device), self.run)

    def moved(self, by: int) -> Rows:
        """As many rows further on."""
        run = None if self.run is None else slice(self.run.start + by, self.run.stop + by)
        return Rows(self.index + by, run)

    def of_table(self, table: Tensor) -> Tensor:
        """`[R, ...]` of `[S, ...]`, not differentiable."""
        return table[self.index if self.run is None else self.run]


def pick_rows(source: Tensor, rows: Rows) -> Tensor:
    """`source[rows]`, `[R, ...]` of `[S, ...]`."""
    (picked,) = pick_parts(source, [(rows, _EVERYTHING)])
    return picked


def pick_parts(source: Tensor, parts: Sequence[tuple[Rows | slice, slice]]) -> tuple[Tensor, ...]:
    """Rows and columns of `[S, C]`: their gradients are added up in one tensor of that size, not in many."""
    picked: tuple[Tensor, ...] = _PickParts.apply(  # type: ignore[no-untyped-call]
        source, [(_shortest(rows), columns) for rows, columns in parts]
    )
    return picked


def _shortest(rows: Rows | slice) -> Tensor | slice:
    if isinstance(rows, slice):
        return rows
    return rows.index if rows.run is None else rows.run


class _PickParts(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, source: Tensor, parts: Sequence[tuple[Tensor | slice, slice]]
    ) -> tuple[Tensor, ...]:
        ctx.parts, ctx.shape = parts, source.shape
        return tuple(
            source[rows, columns] if isinstance(rows, slice) else source[:, columns].index_select(0, rows)
            for rows, columns in parts
        )

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        total = gradients[0].new_zeros(ctx.shape)
        for (rows, columns), gradient in zip(ctx.parts, gradients, strict=True):
            if isinstance(rows, slice):
                total[rows, columns].add_(gradient)
            else:
                total[:, columns].index_add_(0, rows, gradient)
        return total, None
