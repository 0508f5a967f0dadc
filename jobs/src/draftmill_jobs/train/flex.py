"""Attention of training-time test on GPUs: FlexAttention over the prefix, own keys joined by log-sum-exp.

The compiled kernel skips blocks of keys that no query of a block may see, so packed documents cost what they
cost alone. Its own gradient covers the log-sum-exp too, so the merge needs none written by hand. On CPUs the
same code runs uncompiled, for tests, without gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, create_block_mask, flex_attention

from draftmill_jobs.train.attention import Keys
from draftmill_jobs.train.layout import Layout


def flex_ttt_attention(queries: Tensor, prefix: Keys, own: Sequence[Keys], layout: Layout) -> Tensor:
    """See `TttAttention`."""
    if not layout.windows:
        return queries  # there are none
    attend = _compiled() if queries.is_cuda else flex_attention
    out, beside = attend(
        *(x[None] for x in (queries, *prefix)),
        block_mask=_mask(layout, queries.device),
        enable_gqa=True,
        return_aux=AuxRequest(lse=True),
    )
    mixed: Tensor = out[0]  # [heads, N, hd]
    total: Tensor = beside.lse[0]  # [heads, N]
    if not own:
        return mixed
    group, scale = len(queries) // len(prefix.keys), queries.shape[-1] ** -0.5
    repeated = [Keys(*(x.repeat_interleave(group, 0) for x in keys)) for keys in own]
    scores = torch.stack([total, *((queries * keys.keys).sum(-1).to(total) * scale for keys in repeated)])
    shares = scores.softmax(0)[..., None].to(mixed)  # [1 + k, heads, N, 1]
    mixed = shares[0] * mixed
    for share, keys in zip(shares[1:], repeated, strict=True):
        mixed = mixed + share * keys.values
    return mixed


@cache
def _compiled() -> Any:
    return torch.compile(flex_attention, dynamic=True)


def _mask(layout: Layout, device: torch.device) -> BlockMask:
    """A query sees the keys from its document's first up to its own position."""
    first = torch.cat([torch.full((w.queries,), w.first_key, device=device) for w in layout.windows])
    last = layout.query_positions.index

    def visible(_batch: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (key >= first[query]) & (key <= last[query])

    return create_block_mask(visible, None, None, len(last), len(layout.key_places), device=device)
