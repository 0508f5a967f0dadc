"""One optimiser step's forward pass: from packed rows to a loss that can be differentiated."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from draftmill_jobs.train.attention import TttAttention
from draftmill_jobs.train.layout import Layout, PackedStates
from draftmill_jobs.train.losses import Wanted, divergence
from draftmill_jobs.train.model import Drafter, Tables
from draftmill_jobs.train.picking import pick_rows
from draftmill_jobs.train.teacher import Teacher


@dataclass(frozen=True, slots=True)
class Unrolled:
    """What the steps came to.

    Attributes:
        loss: Differentiable: over steps, weight times the sum of divergences.
        sums: float64[K], the plain sum of divergences of each step.
        choices: For each step the draft ids int64[S] at its scored rows; empty when nobody asked.
    """

    loss: Tensor
    sums: Tensor
    choices: list[Tensor]


@dataclass(frozen=True, slots=True)
class Unroller:
    """What all steps of a training share."""

    drafter: Drafter
    teacher: Teacher
    attention: TttAttention
    tables: Tables

    def __call__(
        self, batch: PackedStates, layout: Layout, weights: list[float], *, choose: bool = False
    ) -> Unrolled:
        """Unrolls the drafter over a batch.

        Args:
            batch: Packed rows.
            layout: Where everything is; of as many steps as there are weights.
            weights: Of one scored position in each step: see `step_weights`.
            choose: Whether somebody asks for the choices.
        """
        last = layout.teacher_positions.of_table(batch.last)
        wanted = Wanted.of(self.teacher.log_probabilities(last))  # of J positions
        loss, sums, choices = wanted.information.new_zeros(()), list[Tensor](), list[Tensor]()
        outputs = self.drafter.unroll(batch, layout, self.attention, self.tables)
        for scored, weight, output in zip(layout.scored, weights, outputs, strict=True):
            normed = self.drafter.norm(pick_rows(output, scored.rows)).to(self.drafter.dtype)  # [S, H]
            against = wanted if scored.teachers is None else wanted.at(scored.teachers)
            scaled = divergence(normed, self.drafter.lm_head.weight, against, weight, choose=choose)
            loss = loss + scaled.weighted
            sums.append(scaled.plain)
            choices.append(scaled.choices)
        return Unrolled(loss, torch.stack(sums), choices)


def step_weights(counts: list[int], decay: float) -> list[float]:
    """Weights that make the loss the sum over steps k of `decay ** k` times the step's mean divergence.

    Args:
        counts: Scored positions of each step over all ranks.
        decay: How much less each step counts than the one before it.
    """
    return [decay**step / count if count else 0.0 for step, count in enumerate(counts)]
