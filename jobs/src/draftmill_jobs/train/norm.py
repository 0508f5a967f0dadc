"""RMSNorm with its gradient written out: a third of the passes over memory that its parts take one by one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class RootMeanSquareNorm(nn.Module):
    """x / rms(x) * weight, in float32 whatever comes in."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Norms `[..., size]`."""
        normed: Tensor = _Norm.apply(x.to(self.weight.dtype), self.weight, self.eps)  # type: ignore[no-untyped-call]
        return normed


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        scale = length.square_().div_(x.shape[-1]).add_(eps).rsqrt_()  # [..., 1]
        ctx.save_for_backward(x, weight, scale)
        normed: Tensor = (x * scale).mul_(weight)
        return normed

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        (given,), (x, weight, scale) = gradients, ctx.saved_tensors
        rows, scales = (given * x).flatten(0, -2), scale.flatten()  # [R, H], [R]
        along = ((rows @ weight) * scales.pow(3)).div_(x.shape[-1]).view_as(scale)
        d_x = (given * weight).mul_(scale).addcmul_(x, along, value=-1)
        return d_x, rows.T @ scales, None
