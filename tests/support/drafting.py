"""Small drafters, targets and rows, made from a seed alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from benchmarks.naive_ttt import NaiveBatch, NaiveShape, NaiveTarget
from torch import Tensor

from draftmill_jobs.train.attention import TttAttention, block_attention
from draftmill_jobs.train.draft_config import DraftConfig
from draftmill_jobs.train.layout import Layout, PackedStates, lay_out
from draftmill_jobs.train.model import Drafter
from draftmill_jobs.train.rope import Rope
from draftmill_jobs.train.step import Unroller, step_weights
from draftmill_jobs.train.target import TargetTensors
from draftmill_jobs.train.teacher import Teacher
from draftmill_jobs.train.vocabulary import DraftVocabulary

CPU = torch.device("cpu")


def small_config(**changes: object) -> DraftConfig:
    """Two kv heads for four heads; everything so small that a step takes milliseconds."""
    shape: dict[str, object] = {
        "hidden_size": 16,
        "intermediate_size": 24,
        "heads": 4,
        "kv_heads": 2,
        "head_dim": 6,
        "vocab_size": 50,
        "draft_vocab_size": 20,
        "target_hidden_size": 16,
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 512,
        "rope": Rope(10_000.0),
    }
    return DraftConfig(**{**shape, **changes})  # type: ignore[arg-type]


@dataclass(frozen=True)
class Row:
    """One row: ids int64[T], states `[T, 3, H]`, last `[T, H]`, mask bool[T]."""

    token_ids: Tensor
    states: Tensor
    last: Tensor
    mask: np.ndarray[tuple[int], np.dtype[np.bool_]]

    def in_float32(self) -> Row:
        """The same, narrower."""
        return Row(self.token_ids, self.states.float(), self.last.float(), self.mask)


def random_row(
    config: DraftConfig, length: int, answer: range, seed: int, dtype: torch.dtype = torch.float64
) -> Row:
    """A row whose tokens in `answer` are the answer's."""
    made = torch.Generator().manual_seed(seed)
    states = torch.randn(
        length, config.states + 1, config.target_hidden_size, generator=made, dtype=torch.float64
    )
    mask = np.zeros(length, np.bool_)
    mask[list(answer)] = True
    ids = torch.randint(0, config.vocab_size, (length,), generator=made)
    return Row(ids, states[:, :-1].to(dtype), states[:, -1].to(dtype), mask)


@dataclass(frozen=True)
class Bench:
    """A drafter and the target it learns from, in one dtype."""

    config: DraftConfig
    drafter: Drafter
    target: TargetTensors
    vocabulary: DraftVocabulary
    unroller: Unroller

    def pack(self, rows: Sequence[Row], steps: int) -> tuple[PackedStates, Layout]:
        """Rows behind one another."""
        batch = PackedStates(
            torch.cat([row.token_ids for row in rows]),
            torch.cat([row.states for row in rows]),
            torch.cat([row.last for row in rows]),
        )
        return batch, lay_out(
            [len(row.mask) for row in rows], np.concatenate([row.mask for row in rows]), steps
        )

    def mean_losses(self, rows: Sequence[Row], steps: int) -> list[float]:
        """Mean divergence of each step over these rows, packed."""
        batch, layout = self.pack(rows, steps)
        sums = self.unroller(batch, layout, [1.0] * steps).sums
        return [total.item() / max(1, len(scored)) for total, scored in zip(sums, layout.scored, strict=True)]

    def loss(self, rows: Sequence[Row], steps: int, decay: float = 1.0) -> Tensor:
        """What is differentiated."""
        batch, layout = self.pack(rows, steps)
        weights = step_weights([len(scored) for scored in layout.scored], decay)
        return self.unroller(batch, layout, weights).loss

    def naive(
        self, rows: Sequence[Row], *, pad_left: bool = False
    ) -> tuple[NaiveShape, NaiveTarget, NaiveBatch]:
        """The same for the plain loop."""
        config, longest = self.config, max(len(row.mask) for row in rows)

        def padded(x: Tensor) -> Tensor:
            empty = x.new_zeros(longest - len(x), *x.shape[1:])
            return torch.cat([empty, x] if pad_left else [x, empty])

        shape = NaiveShape(
            config.heads, config.kv_heads, config.head_dim, config.rms_norm_eps, config.rope.theta
        )
        ids = torch.from_numpy(self.vocabulary.target_ids)
        batch = NaiveBatch(
            token_ids=torch.stack([padded(row.token_ids) for row in rows]),
            states=torch.stack([padded(row.states.flatten(1)) for row in rows]),
            last=torch.stack([padded(row.last) for row in rows]),
            mask=torch.stack([padded(torch.from_numpy(row.mask)) for row in rows]),
            real=torch.stack([padded(torch.ones(len(row.mask), dtype=torch.bool)) for row in rows]),
        )
        return shape, NaiveTarget(self.target.embeddings, self.target.norm, self.target.head, ids), batch


def make_bench(
    config: DraftConfig | None = None,
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    attention: TttAttention = block_attention,
) -> Bench:
    """Random weights of a sensible size, norms that are not one."""
    config = config or small_config()
    made = torch.Generator().manual_seed(seed)

    def table(columns: int) -> Tensor:
        return torch.randn(config.vocab_size, columns, generator=made, dtype=torch.float64).to(dtype)

    embeddings, head = table(config.hidden_size), table(config.target_hidden_size) / 2
    norm = torch.linspace(0.5, 1.5, config.target_hidden_size, dtype=dtype)
    target = TargetTensors({}, embeddings, norm, config.rms_norm_eps, head)
    drafter = Drafter(config, embeddings, dtype).to(dtype)
    with torch.no_grad():
        for parameter in drafter.parameters():
            noise = torch.randn(parameter.shape, generator=made, dtype=torch.float64).to(dtype)
            parameter.copy_(1 + noise / 8 if parameter.dim() == 1 else noise * parameter.shape[1] ** -0.5)
    # Any ascending choice will do; a pattern shows a mix-up of draft and target ids.
    ids = np.arange(config.draft_vocab_size) * config.vocab_size // config.draft_vocab_size
    vocabulary = DraftVocabulary(ids.astype(np.int64), config.vocab_size)
    tables = config.rope.tables(config.max_position_embeddings, config.head_dim)
    unroller = Unroller(drafter, Teacher(target, vocabulary, CPU, dtype), attention, tables)
    return Bench(config, drafter, target, vocabulary, unroller)


def parity_case() -> tuple[Bench, list[Row]]:
    """A small row on which losses are compared; the teacher's choice can always be drafted."""
    bench = make_bench(dtype=torch.float32)
    outside = torch.from_numpy(~bench.vocabulary.t2d)
    bench.target.head[outside] /= 100
    return bench, [random_row(bench.config, 40, range(12, 30), 5, torch.float32)]
