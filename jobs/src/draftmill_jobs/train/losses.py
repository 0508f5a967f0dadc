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


class Wanted(NamedTuple):
    """What a target says, over the draft vocabulary.

    Attributes:
        probabilities: `[J, DV]`, at least float32.
        information: `[J]`, the sum of p log p, which is the negative entropy; of the same dtype.
    """

    probabilities: Tensor
    information: Tensor

    @classmethod
    def of(cls, logarithms: Tensor) -> Wanted:
        """Of log-probabilities, whose memory it takes: there is never a second tensor as large."""
        information = logarithms.new_empty(len(logarithms))
        for part in chunks(*logarithms.shape):
            probabilities = logarithms[part].exp()
            information[part] = logarithms[part].mul_(probabilities).sum(-1)
            logarithms[part] = probabilities
        return cls(logarithms, information)

    def at(self, rows: Tensor) -> Wanted:
        """Some rows only."""
        return Wanted(self.probabilities[rows], self.information[rows])


class ChunkedLoss(NamedTuple):
    """What one step's outputs are worth.

    Attributes:
        weighted: Sum of weighted divergences, differentiable.
        plain: The same unweighted, float64, for people.
        choices: int64[S], the draft id with the highest logit; empty when nobody asked.
    """

    weighted: Tensor
    plain: Tensor
    choices: Tensor


def divergence(
    hidden: Tensor, head: Tensor, wanted: Wanted, weight: float, *, choose: bool = False
) -> ChunkedLoss:
    """Weighted sum of KL(wanted, softmax(hidden @ head.T)) over rows.

    Args:
        hidden: `[S, H]`, normed outputs of the drafter; its dtype is that of the products.
        head: `[DV, H]`, the drafter's lm_head.
        wanted: Of S rows.
        weight: Of each row.
        choose: Whether somebody asks for the choices.
    """
    total, plain, choices = _Divergence.apply(hidden, head, wanted, choose)  # type: ignore[no-untyped-call]
    return ChunkedLoss(total * weight, plain, choices)


def plain_divergence(hidden: Tensor, head: Tensor, logarithms: Tensor, weight: float) -> Tensor:
    """The definition, for a target with these log-probabilities."""
    drafted = (hidden @ head.T).log_softmax(-1)
    return weight * (logarithms.exp() * (logarithms - drafted)).sum()


def chunks(rows: int, width: int) -> list[slice]:
    """Ranges of rows of that width, so that a chunk has a bounded number of elements."""
    step = max(1, _CHUNK_ELEMENTS // width)
    return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]


class _Divergence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, head: Tensor, wanted: Wanted, choose: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        cast = head.to(hidden.dtype)
        total = wanted.information.sum(dtype=torch.float64)
        choices = torch.empty(len(hidden) if choose else 0, dtype=torch.int64, device=hidden.device)
        wants_gradients = any(ctx.needs_input_grad[:2])
        d_hidden = torch.empty_like(hidden) if wants_gradients else None
        d_head: Tensor | None = None
        for part in chunks(len(hidden), len(head)):
            logits = product(hidden[part], cast.T).to(wanted.probabilities.dtype)  # [C, DV]
            if choose:
                choices[part] = logits.argmax(-1)
            expected, drafted = wanted.probabilities[part], logits.log_softmax(-1)
            total -= (expected * drafted).sum(-1).sum(dtype=torch.float64)
            if d_hidden is None:
                continue
            d_logits = drafted.exp_().sub_(expected).to(hidden.dtype)
            d_hidden[part] = product(d_logits, cast)
            found = product(d_logits.T, hidden[part]).to(head.dtype)
            d_head = found if d_head is None else d_head.add_(found)
        if d_hidden is not None:
            ctx.save_for_backward(d_hidden, torch.zeros_like(head) if d_head is None else d_head)
        ctx.mark_non_differentiable(total, choices)
        return total.to(wanted.probabilities.dtype, copy=True), total, choices

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return *(x * gradients[0].to(x.dtype) for x in ctx.saved_tensors), None, None
