"""Products of matrices: torch's own, but in float32 on CPUs those of oneDNN.

Torch hands float32 products to MKL, which takes half of the vector width of a processor that is not Intel's:
oneDNN is about twice as fast on AMD's with AVX-512, and as fast on Intel's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """`x @ weight.T`, differentiable: `[N, K]` and `[M, K]` to `[N, M]`."""
    if not _by_onednn(x):
        return functional.linear(x, weight)
    found: Tensor = _Linear.apply(x, weight)  # type: ignore[no-untyped-call]
    return found


def product(left: Tensor, right: Tensor) -> Tensor:
    """`left @ right`, not differentiable: `[N, K]` and `[K, M]` to `[N, M]`."""
    if not _by_onednn(left):
        return left @ right
    left, right = _dense(left), _dense(right)
    if not left.is_contiguous() and right.numel() < left.numel():
        return _product(right.T, left.T).T  # a first operand that is transposed is copied: the smaller one
    return _product(left, right)


def _product(left: Tensor, right: Tensor) -> Tensor:
    found: Tensor = torch.ops.mkldnn._linear_pointwise(left, right.T, None, "none", [], "")
    return found


def _by_onednn(x: Tensor) -> bool:
    cpu = x.device.type == "cpu" and torch.backends.mkldnn.is_available()
    return cpu and x.dtype is torch.float32 and x.numel() > 0


def _dense(x: Tensor) -> Tensor:
    """The matrix with its rows, or its columns, behind one another: any other makes oneDNN very slow."""
    return x if x.is_contiguous() or x.T.is_contiguous() else x.contiguous()


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return product(x, weight.T)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        (given,), (x, weight) = gradients, ctx.saved_tensors
        wants_x, wants_weight = ctx.needs_input_grad
        return (
            product(given, weight) if wants_x else None,
            product(given.T, x) if wants_weight else None,
        )
