"""A look at rows that were held out: the simulated acceptance length, or the agreement with the teacher."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from draftmill_api.drafter import DrafterAcceptance
from draftmill_api.v1alpha1.trainstatus import Yardstick
from draftmill_jobs.train.data import PackedBatch, RowInfo
from draftmill_jobs.train.metrics import Acceptance, count_acceptance
from draftmill_jobs.train.packing import Batch, pack, share_of
from draftmill_jobs.train.step import Unroller
from draftmill_jobs.train.vocabulary import DraftVocabulary
from draftmill_jobs.train.world import World


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What held-out rows say.

    Attributes:
        yardstick: What was counted; decides on the figure's name.
        acceptance: The counts.
        losses: Mean divergence of each step.
        corrupt: Numbers of rows that should have been looked at and cannot be used.
    """

    yardstick: Yardstick
    acceptance: Acceptance
    losses: tuple[float, ...]
    corrupt: tuple[int, ...] = ()

    @property
    def figure(self) -> float:
        """What the best checkpoint is chosen by."""
        return self.acceptance.length

    def measured(self) -> DrafterAcceptance:
        """The same, as checkpoints and manifests keep it."""
        return DrafterAcceptance(
            yardstick=self.yardstick,
            length=self.acceptance.length,
            cycles=self.acceptance.cycles,
            by_position=list(self.acceptance.by_position),
            accuracy=list(self.acceptance.accuracy),
        )


def yardstick_for(rows: Iterable[RowInfo]) -> Yardstick:
    """Greedy rows can show an acceptance length; without any only the teacher can be asked."""
    if any(row.greedy for row in rows):
        return Yardstick.ACCEPTANCE_LENGTH
    return Yardstick.TEACHER_AGREEMENT


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Evaluates a drafter as it is.

    Attributes:
        vocabulary: Its own.
        rows: Of the whole store.
        steps: K, how many tokens are drafted in a cycle.
    """

    unroller: Unroller
    vocabulary: DraftVocabulary
    rows: tuple[RowInfo, ...]
    yardstick: Yardstick
    steps: int

    def batches(self, held_out: Batch, tokens: int, world: World) -> list[Batch]:
        """This process's part of the rows that the yardstick can be laid on, packed."""
        wanted = [
            row for row in held_out if self.yardstick is Yardstick.TEACHER_AGREEMENT or self.rows[row].greedy
        ]
        lengths = [info.tokens for info in self.rows]
        keys = [self.rows[row].key for row in wanted]
        packed = pack(keys, [lengths[row] for row in wanted], tokens=tokens, seed=0, epoch=0)
        numbers = (tuple(wanted[i] for i in batch) for batch in packed)
        return [share_of(batch, lengths, rank=world.rank, ranks=world.ranks) for batch in numbers]

    def evaluate(self, batches: Iterable[PackedBatch], world: World) -> Evaluation:
        """Counts over all processes."""
        total, sums, counts = Acceptance.none(self.steps), np.zeros(self.steps), np.zeros(self.steps)
        corrupt = list[int]()
        for batch in batches:
            corrupt += batch.corrupt
            found, losses = self._look(batch, world.device)
            total = total + found
            sums += losses
            counts += [len(scored) for scored in batch.layout.scored]
        flat = [total.cycles, *total.accepted, *total.hits, *total.asked, *sums, *counts]
        cycles, *rest = world.sums(flat)
        accepted, hits, asked, sums, counts = np.array(rest).reshape(5, -1)
        acceptance = Acceptance(
            int(cycles), *(tuple(int(x) for x in part) for part in (accepted, hits, asked))
        )
        means = tuple(float(s / n) if n else 0.0 for s, n in zip(sums, counts, strict=True))
        return Evaluation(self.yardstick, acceptance, means, tuple(sorted(world.union(corrupt))))

    @torch.no_grad()
    def _look(self, batch: PackedBatch, device: torch.device) -> tuple[Acceptance, list[float]]:
        packed, layout = batch.packed.to(device), batch.layout.to(device)
        unrolled = self.unroller(packed, layout, [1.0] * layout.steps, choose=True)
        return self.count(batch, unrolled.choices), unrolled.sums.tolist()

    def count(self, batch: PackedBatch, choices: Sequence[Tensor]) -> Acceptance:
        """Counts what was drafted in a batch, in rows that the yardstick can be laid on.

        Args:
            batch: On the CPU.
            choices: Of each step, as `Unrolled` has them.
        """
        layout, edges = batch.layout, np.concatenate([[0], np.cumsum(batch.lengths)])
        drafted = np.full((layout.steps, len(layout.query_positions)), -1, np.int64)
        for step, (scored, chosen) in enumerate(zip(layout.scored, choices, strict=True)):
            drafted[step, scored.rows.index.numpy()] = self.vocabulary.target_ids[chosen.cpu().numpy()]
        wanted = self._wanted(batch)
        found = Acceptance.none(layout.steps)
        for window in layout.windows:
            number = int(np.searchsorted(edges, window.first_key, side="right")) - 1
            if self.yardstick is Yardstick.ACCEPTANCE_LENGTH and not self.rows[batch.rows[number]].greedy:
                continue
            document = slice(window.first_key, int(edges[number + 1]))
            queries = slice(window.first_row, window.first_row + window.queries)
            first = window.first_query - window.first_key
            found = found + count_acceptance(
                drafted[:, queries], first, batch.mask[document], wanted[document]
            )
        return found

    def _wanted(self, batch: PackedBatch) -> NDArray[np.int64]:
        """What token j should be, int64[T]."""
        wanted: NDArray[np.int64] = batch.packed.token_ids.numpy()
        if self.yardstick is Yardstick.TEACHER_AGREEMENT:
            positions = batch.layout.teacher_positions.index
            wanted = wanted.copy()
            wanted[positions.numpy() + 1] = (
                self.unroller.teacher.choices(batch.packed.last[positions]).cpu().numpy()
            )
        return wanted
