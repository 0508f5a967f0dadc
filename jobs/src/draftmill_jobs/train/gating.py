"""SwiGLU's gate with its gradient written out: both halves go into one tensor, and nothing is copied."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def gated(gate_up: Tensor) -> Tensor:
    """silu(gate) * up, `[N, I]` of `[N, 2I]` (Shazeer, GLU Variants Improve Transformer)."""
    found: Tensor = _Gate.apply(gate_up)  # type: ignore[no-untyped-call]
    return found


class _Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate_up: Tensor) -> Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        opened = functional.silu(gate)
        ctx.save_for_backward(gate_up, opened)
        return opened * up

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (given,), (gate_up, opened) = gradients, ctx.saved_tensors
        gate, up = gate_up.chunk(2, dim=-1)
        found = torch.empty_like(gate_up)
        d_gate, d_up = found.chunk(2, dim=-1)
        torch.mul(given, opened, out=d_up)
        torch.ops.aten.silu_backward.grad_input(given * up, gate, grad_input=d_gate)
        return found
