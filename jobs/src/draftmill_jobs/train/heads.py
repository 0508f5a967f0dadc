"""Projections cut into heads, and turned to their places (rotary position embedding)."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor


class Heads(NamedTuple):
    """Queries `[heads, N, hd]`, keys and values `[kv heads, N, hd]`; what a projection lacks is empty."""

    queries: Tensor
    keys: Tensor
    values: Tensor


def turned_heads(projected: Tensor, cos: Tensor, sin: Tensor, *, queries: int, keys: int) -> Heads:
    """Cuts a projection `[N, heads * hd]`, and turns queries and keys.

    Args:
        projected: Heads of queries, then of keys, then of values.
        cos: `[N, hd]`, the places' cosines.
        sin: `[N, hd]`, their sines; the halves of a head are the two coordinates that are turned.
        queries: How many heads these are.
        keys: How many heads these are.
    """
    return Heads(
        *_TurnedHeads.apply(projected, cos, sin, (queries, keys))  # type: ignore[no-untyped-call]
    )


class _TurnedHeads(torch.autograd.Function):
    """Every head is written where it is read next, and gradients are turned back into one tensor."""

    @staticmethod
    def forward(
        ctx: Any, projected: Tensor, cos: Tensor, sin: Tensor, counts: tuple[int, int]
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.save_for_backward(cos, sin)
        ctx.width = projected.shape[1]
        cut = _heads_first(projected, cos.shape[1])
        turned = torch.empty_like(cut[: sum(counts)], memory_format=torch.contiguous_format)
        _turn(cut[: sum(counts)], cos, sin, 1.0, out=turned)
        return turned[: counts[0]], turned[counts[0] :], cut[sum(counts) :].contiguous()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        cos, sin = ctx.saved_tensors
        found = cos.new_empty(len(cos), ctx.width)
        first, cut = 0, _heads_first(found, cos.shape[1])
        *turned, values = gradients
        for part in turned:
            _turn(part, cos, sin, -1.0, out=cut[first : first + len(part)])
            first += len(part)
        cut[first:] = values
        return found, None, None, None


def _heads_first(projected: Tensor, size: int) -> Tensor:
    """`[heads, N, hd]`, a view of `[N, heads * hd]`."""
    return projected.view(len(projected), projected.shape[1] // size, size).transpose(0, 1)


def _turn(x: Tensor, cos: Tensor, sin: Tensor, direction: float, *, out: Tensor) -> None:
    """Turns heads `[..., N, hd]`, or back, in as few passes over memory as there can be."""
    half = x.shape[-1] // 2
    torch.mul(x, cos, out=out)
    out[..., :half].addcmul_(x[..., half:], sin[..., :half], value=-direction)
    out[..., half:].addcmul_(x[..., :half], sin[..., half:], value=direction)
