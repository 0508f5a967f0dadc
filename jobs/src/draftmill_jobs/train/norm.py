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
        found: Tensor = _Norm.apply(x.to(self.weight.dtype), self.weight, self.eps)  # type: ignore[no-untyped-call]
        return found


def normed(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The norm of `[..., size]`, not differentiable, and what it was scaled by, `[..., 1]`."""
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    scale = length.square_().div_(x.shape[-1]).add_(eps).rsqrt_()
    return (x * scale).mul_(weight), scale


def norm_gradients(
    given: Tensor, x: Tensor, weight: Tensor, scale: Tensor, plus: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Gradients of x, with what else it is given added, and of the weight, from that of the normed x."""
    rows, scales = (given * x).flatten(0, -2), scale.flatten()  # [R, size], [R]
    along = ((rows @ weight) * scales.pow(3)).div_(x.shape[-1]).view_as(scale)
    d_x = given * weight
    d_x = d_x.mul_(scale) if plus is None else torch.addcmul(plus, d_x, scale)
    return d_x.addcmul_(x, along, value=-1), rows.T @ scales


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        found, scale = normed(x, weight, eps)
        ctx.save_for_backward(x, weight, scale)
        return found

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        return *norm_gradients(gradients[0], *ctx.saved_tensors), None
