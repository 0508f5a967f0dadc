"""The second half of the layer, norm, SwiGLU and residual, with its gradient written out.

What autograd would copy, cut and add up between its parts is read once, and written where it is read next.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from draftmill_jobs.train.norm import RootMeanSquareNorm, norm_gradients, normed
from draftmill_jobs.train.products import product


class Gated(NamedTuple):
    """The weights of SwiGLU in the dtype of its products: `[I, H]` twice, and `[H, I]`."""

    gate: Tensor
    up: Tensor
    down: Tensor


def feed_forward(hidden: Tensor, norm: RootMeanSquareNorm, weights: Gated) -> Tensor:
    """`hidden + down(silu(gate(x)) * up(x))` with x = norm(hidden), `[N, H]` of the residual stream `[N, H]`.

    SwiGLU is Shazeer's (GLU Variants Improve Transformer).
    """
    found: Tensor = _FeedForward.apply(  # type: ignore[no-untyped-call]
        hidden, norm.weight, norm.eps, *weights
    )
    return found


class _FeedForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, norm: Tensor, eps: float, *weights: Tensor) -> Tensor:
        gate, up, down = weights
        wide, scale = normed(hidden, norm, eps)
        x = wide.to(gate.dtype)
        gates, ups = product(x, gate.T), product(x, up.T)  # [N, I] each
        opened = functional.silu(gates)
        passed = opened * ups
        ctx.save_for_backward(hidden, norm, scale, x, gates, ups, opened, passed, *weights)
        return product(passed, down.T, hidden)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        hidden, norm, scale, x, gates, ups, opened, passed, gate, up, down = ctx.saved_tensors
        given = gradients[0]
        narrow = given.to(down.dtype)
        d_down = product(narrow.T, passed)
        d_passed = product(narrow, down)
        d_ups = d_passed * opened
        d_gates = torch.ops.aten.silu_backward(d_passed.mul_(ups), gates)
        d_x = product(d_ups, up, product(d_gates, gate))
        d_hidden, d_norm = norm_gradients(d_x.to(hidden.dtype), hidden, norm, scale, given)
        across = x.T.contiguous()  # once for both
        d_gate, d_up = product(across, d_gates).T, product(across, d_ups).T
        return d_hidden, d_norm, None, d_gate, d_up, d_down
