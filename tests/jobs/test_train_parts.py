"""Parts of a training step that have gradients of their own: they are those of the definitions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from draftmill_jobs.train.feed_forward import Gated, feed_forward
from draftmill_jobs.train.heads import turned_heads
from draftmill_jobs.train.norm import RootMeanSquareNorm
from draftmill_jobs.train.products import linear, product
from draftmill_jobs.train.rope import Rope

Parts = dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor], tuple[Tensor, ...]]]


def made(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)), dtype=dtype)


def normed(x: Tensor, weight: Tensor) -> Tensor:
    norm = RootMeanSquareNorm(x.shape[-1], 1e-5)
    found: Tensor = torch.func.functional_call(norm, {"weight": weight}, (x,))
    return found


def plainly_normed(x: Tensor, weight: Tensor) -> Tensor:
    return functional.rms_norm(x, x.shape[-1:], weight, 1e-5)


class Fed(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.norm = RootMeanSquareNorm(size, 1e-5)

    def forward(self, x: Tensor, *weights: Tensor) -> Tensor:
        return feed_forward(x, self.norm, Gated(*weights))


def fed(x: Tensor, norm: Tensor, *weights: Tensor) -> Tensor:
    found: Tensor = torch.func.functional_call(Fed(x.shape[-1]), {"norm.weight": norm}, (x, *weights))
    return found


def plainly_fed(x: Tensor, norm: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    inside = plainly_normed(x, norm)
    return x + (functional.silu(inside @ gate.T) * (inside @ up.T)) @ down.T


def in_heads(projected: Tensor) -> Tensor:
    """Two heads of queries, one of keys, one of values, behind one another."""
    return torch.cat(turned_heads(projected, *TABLES, queries=2, keys=1))


def plainly_in_heads(projected: Tensor) -> Tensor:
    cos, sin = TABLES
    heads = projected.unflatten(1, (4, 6)).transpose(0, 1)
    first, second = heads.chunk(2, dim=-1)
    turned = heads * cos + torch.cat([-second, first], -1) * sin
    return torch.cat([turned[:3], heads[3:]])


TABLES = tuple(table.double() for table in Rope(100.0).tables(5, 6))
PARTS: Parts = {
    "norm": (normed, plainly_normed, (made(3, 7), made(7))),
    "norm of a stack": (normed, plainly_normed, (made(2, 3, 7), made(7))),
    "feed-forward": (fed, plainly_fed, (made(5, 7), made(7), made(4, 7), made(4, 7), made(7, 4))),
    "heads": (in_heads, plainly_in_heads, (made(5, 24),)),
    "product": (linear, functional.linear, (made(5, 3), made(4, 3))),
    "product and sum": (
        linear,
        lambda x, weight, plus: functional.linear(x, weight) + plus,
        (made(5, 3), made(4, 3), made(5, 4)),
    ),
}


@pytest.mark.parametrize("part", PARTS)
def test_a_part_and_its_gradients_are_those_of_its_definition(part: str) -> None:
    ours, definition, inputs = PARTS[part]
    inputs = tuple(x.clone().requires_grad_() for x in inputs)
    found, expected = ours(*inputs), definition(*inputs)
    given = made(*found.shape)

    assert torch.allclose(found, expected, rtol=1e-12)
    mine, theirs = (torch.autograd.grad(out, inputs, given) for out in (found, expected))
    assert all(torch.allclose(a, b, rtol=1e-10, atol=1e-14) for a, b in zip(mine, theirs, strict=True))


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.T.contiguous().T,
    "cut out of a wider one": lambda x: torch.cat([x, x], 1)[:, : x.shape[1]],
    "every other row": lambda x: x.repeat_interleave(2, 0)[::2],
}


@pytest.mark.parametrize("right", LAYOUTS)
@pytest.mark.parametrize("left", LAYOUTS)
def test_a_float32_product_is_right_whatever_lies_how_in_memory(left: str, right: str) -> None:
    a, b = made(70, 33, dtype=torch.float32), made(33, 50, dtype=torch.float32)
    exact = a.double() @ b.double()

    found = product(LAYOUTS[left](a), LAYOUTS[right](b))

    assert torch.allclose(found.double(), exact, rtol=1e-5, atol=1e-5)


def test_a_float32_product_and_its_gradients_are_torchs_to_rounding() -> None:
    x, weight = (made(*shape, dtype=torch.float32).requires_grad_() for shape in ((70, 33), (50, 33)))
    given = made(70, 50, dtype=torch.float32)

    mine, theirs = (
        torch.autograd.grad(multiply(x, weight), [x, weight], given)
        for multiply in (linear, functional.linear)
    )

    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-4) for a, b in zip(mine, theirs, strict=True))


def test_a_product_of_no_rows_is_empty() -> None:
    assert product(torch.empty(0, 3), torch.ones(3, 2)).shape == (0, 2)
