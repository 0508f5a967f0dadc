"""A drafter and its teacher on a device, ready to be unrolled over rows."""

from __future__ import annotations

from typing import Final

import torch

from draftmill_jobs.train.attention import TttAttention, block_attention
from draftmill_jobs.train.model import Drafter
from draftmill_jobs.train.starting import Start
from draftmill_jobs.train.step import Unroller
from draftmill_jobs.train.target import TargetTensors
from draftmill_jobs.train.teacher import Teacher

_MOST_STEPS: Final = 16  # of training-time test


def make_unroller(
    start: Start, target: TargetTensors, device: torch.device, dtype: torch.dtype, longest: int
) -> Unroller:
    """Puts everything on a device.

    Args:
        start: The drafter.
        target: What it learns from.
        device: Where it computes.
        dtype: In which the large products are computed.
        longest: Tokens of the longest row.
    """
    drafter = Drafter(start.config, target.embeddings.to(device, dtype), dtype).to(device)
    drafter.load_state_dict(dict(start.weights))
    tables = start.config.rope.tables(longest + _MOST_STEPS, start.config.head_dim)
    on_device = (tables[0].to(device), tables[1].to(device))
    return Unroller(drafter, Teacher(target, start.vocabulary, device, dtype), _attention(device), on_device)


def _attention(device: torch.device) -> TttAttention:
    if device.type == "cpu":
        return block_attention
    from draftmill_jobs.train.flex import flex_ttt_attention  # noqa: PLC0415 - compiles on import

    return flex_ttt_attention
