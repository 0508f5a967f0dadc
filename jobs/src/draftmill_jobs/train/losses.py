"""The loss: Kullback-Leibler divergence from the target to the drafter over the draft vocabulary, in float32.

No tensor is as wide as the target's vocabulary, and none of the drafter's logits outlives its chunk: a
chunk's gradients are formed with its loss, while the logits are there.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from draftmill_jobs.train.products import product

_CHUNK_ELEMENTS: Final = 1 << 23  # logits at a time: 32 MiB in float32


class ChunkedLoss(NamedTuple):
    """What one step's outputs are worth.

    Attributes:
        weighted: Sum of weighted divergences, differentiable.
        plain: The same unweighted, float64, for people.
        choices: int64[S], the draft id with the highest logit.
    """

    weighted: Tensor
    plain: Tensor
    choices: Tensor


def divergence(hidden: Tensor, head: Tensor, teacher: Tensor, weight: float) -> ChunkedLoss:
    """Weighted sum of KL(teacher, softmax(hidden @ head.T)) over rows.

    Args:
        hidden: `[S, H]`, normed outputs of the drafter; its dtype is that of the products.
        head: `[DV, H]`, the drafter's lm_head.
        teacher: `[S, DV]`, log-probabilities, at least float32.
        weight: Of each row.
    """
    found = _Divergence.apply(hidden, head, teacher, weight)  # type: ignore[no-untyped-call]
    return ChunkedLoss(*found)


def plain_divergence(hidden: Tensor, head: Tensor, teacher: Tensor, weight: float) -> Tensor:
    """The definition."""
    drafted = (hidden @ head.T).log_softmax(-1)
    return weight * (teacher.exp() * (teacher - drafted)).sum()


def chunks(rows: int, width: int) -> list[slice]:
    """Ranges of rows of that width, so that a chunk has a bounded number of elements."""
    step = max(1, _CHUNK_ELEMENTS // width)
    return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]


class _Divergence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, head: Tensor, teacher: Tensor, weight: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        cast = head.to(hidden.dtype)
        total = teacher.new_zeros((), dtype=torch.float64)
        choices = torch.empty(len(hidden), dtype=torch.int64, device=hidden.device)
        wants_gradients = any(ctx.needs_input_grad[:2])
        d_hidden = torch.empty_like(hidden) if wants_gradients else None
        d_head = torch.zeros_like(head) if wants_gradients else None
        for part in chunks(len(hidden), len(head)):
            logits = product(hidden[part], cast.T).to(teacher.dtype)  # [C, DV]
            choices[part] = logits.argmax(-1)
            drafted = logits.log_softmax(-1)
            wanted = teacher[part].exp()
            total += (wanted * (teacher[part] - drafted)).sum(dtype=torch.float64)
            if d_hidden is None or d_head is None:
                continue
            d_logits = drafted.exp_().sub_(wanted).mul_(weight).to(hidden.dtype)
            d_hidden[part] = product(d_logits, cast)
            d_head += product(d_logits.T, hidden[part]).to(head.dtype)
        if d_hidden is not None and d_head is not None:
            ctx.save_for_backward(d_hidden, d_head)
        ctx.mark_non_differentiable(total, choices)
        return (total * weight).to(teacher.dtype), total, choices

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        d_hidden, d_head = ctx.saved_tensors
        given = gradients[0]
        return d_hidden * given.to(d_hidden.dtype), d_head * given.to(d_head.dtype), None, None
