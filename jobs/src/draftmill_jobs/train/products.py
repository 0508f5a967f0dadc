"""Products of matrices: torch's own, but in float32 on CPUs those of oneDNN.

Torch hands float32 products to MKL, which takes half of the vector width of a processor that is not Intel's:
oneDNN is about twice as fast on AMD's with AVX-512, and as fast on Intel's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def linear(x: Tensor, weight: Tensor, plus: Tensor | None = None) -> Tensor:
    """`x @ weight.T + plus`, differentiable: `[N, K]`, `[M, K]` and `[N, M]` to `[N, M]`."""
    if not _by_onednn(x):
        multiplied = functional.linear(x, weight)
        return multiplied if plus is None else multiplied + plus
    found: Tensor = _Linear.apply(x, weight, plus)  # type: ignore[no-untyped-call]
    return found


def product(left: Tensor, right: Tensor, plus: Tensor | None = None) -> Tensor:
    """`left @ right + plus`, not differentiable: `[N, K]`, `[K, M]` and `[N, M]` to `[N, M]`."""
    if not _by_onednn(left):
        return left @ right if plus is None else left @ right + plus
    left, right = _dense(left), _dense(right)
    if not left.is_contiguous() and right.numel() < left.numel():
        # A first operand that is transposed is copied: the smaller one.
        return _product(right.T, left.T, None if plus is None else plus.T).T
    return _product(left, right, plus)


def _product(left: Tensor, right: Tensor, plus: Tensor | None) -> Tensor:
    if plus is None:
        found: Tensor = torch.ops.mkldnn._linear_pointwise(left, right.T, None, "none", [], "")
    else:
        found = torch.ops.mkldnn._linear_pointwise.binary(left, plus, right.T, None, "add")
    return found


def _by_onednn(x: Tensor) -> bool:
    cpu = x.device.type == "cpu" and torch.backends.mkldnn.is_available()
    return cpu and x.dtype is torch.float32 and x.numel() > 0


def _dense(x: Tensor) -> Tensor:
    """The matrix with its rows, or its columns, behind one another: any other makes oneDNN very slow."""
    return x if x.is_contiguous() or x.T.is_contiguous() else x.contiguous()


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, plus: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return product(x, weight.T, plus)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        (given,), (x, weight) = gradients, ctx.saved_tensors
        wants_x, wants_weight, wants_plus = ctx.needs_input_grad
        return (
            product(given, weight) if wants_x else None,
            product(given.T, x) if wants_weight else None,
            given if wants_plus else None,
        )
