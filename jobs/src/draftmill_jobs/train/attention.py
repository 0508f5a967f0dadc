"""Attention of training-time test: the causal prefix of step 0, and of each later step a query's own key.

Three ways to compute it. `plain_attention` writes it down: it is what the others are tested against.
`block_attention`, for CPUs, never forms a mask over a batch: each document's queries ask in blocks, each
block exactly the keys that it may see. Its memory is bounded, then grows with the number of queries, not
with its square. `draftmill_jobs.train.flex` is for GPUs.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from draftmill_jobs.train.layout import Layout, Window

_BLOCK: Final = 128  # queries; smaller ones see fewer masked keys, larger ones multiply faster
_KEPT_ELEMENTS: Final = 1 << 24  # shares of one step that are kept for its backward pass: 64 MiB in float32


class Keys(NamedTuple):
    """Keys, turned to their places, and values: `[kv heads, T, hd]` each."""

    keys: Tensor
    values: Tensor


class TttAttention(Protocol):
    """Mixes values for queries `[heads, N, hd]`: returns `[heads, N, hd]`.

    `prefix` are all T keys of step 0, `own` the N keys of each later step up to the queries' own.
    """

    def __call__(self, queries: Tensor, prefix: Keys, own: Sequence[Keys], layout: Layout) -> Tensor:
        """See above."""


def plain_attention(queries: Tensor, prefix: Keys, own: Sequence[Keys], layout: Layout) -> Tensor:
    """The definition, with a mask over everything."""
    group = len(queries) // len(prefix.keys)
    (keys, values), *later = (Keys(*(x.repeat_interleave(group, 0) for x in pair)) for pair in (prefix, *own))
    shape = queries.shape[1], keys.shape[1]
    allowed = torch.zeros(shape, dtype=torch.bool, device=queries.device)
    for window in layout.windows:
        for i in range(window.queries):
            allowed[window.first_row + i, window.first_key : window.first_query + i + 1] = True
    scale = queries.shape[-1] ** -0.5
    scores = (queries @ keys.transpose(1, 2)).masked_fill(~allowed, float("-inf"))
    diagonal = [(queries * x.keys).sum(-1, keepdim=True) for x in later]
    shares = (torch.cat([scores, *diagonal], -1) * scale).softmax(-1)  # [heads, N, T + k]
    mixed: Tensor = shares[..., : shape[1]] @ values
    for i, x in enumerate(later):
        mixed = mixed + shares[..., shape[1] + i, None] * x.values
    return mixed


def block_attention(queries: Tensor, prefix: Keys, own: Sequence[Keys], layout: Layout) -> Tensor:
    """The same in blocks."""
    if not layout.windows:
        return queries  # there are none
    flat = [tensor for keys in own for tensor in keys]
    mixed: Tensor = _BlockAttention.apply(  # type: ignore[no-untyped-call]
        queries, *prefix, layout.windows, *flat
    )
    return mixed


class _Block(NamedTuple):
    """Consecutive queries of a window, and how many keys they see: own ones, and up to the last of them."""

    window: int
    queries: int
    seen: int


def _blocks(windows: Sequence[Window], own: int) -> list[_Block]:
    """Of all queries, in order."""
    found = []
    for number, window in enumerate(windows):
        before = own + window.first_query - window.first_key
        for start in range(0, window.queries, _BLOCK):
            stop = min(start + _BLOCK, window.queries)
            found.append(_Block(number, stop - start, before + stop))
    return found


class _BlockAttention(torch.autograd.Function):
    """Forward keeps the shares of short rows; backward forms others anew.

    The k own keys of a query are k more columns of its scores, in front of those of the prefix: a window's
    keys and values begin with k rows of zeros, whose scores are then written by hand. One softmax and its
    gradient serve both, and every product is one of matrices without gaps.
    """

    @staticmethod
    def forward(
        ctx: Any, queries: Tensor, keys: Tensor, values: Tensor, windows: Sequence[Window], *own: Tensor
    ) -> Tensor:
        own_keys, own_values = own[::2], own[1::2]
        count, groups = len(own_keys), (len(keys), len(queries) // len(keys))
        asked = (queries * queries.shape[-1] ** -0.5).unflatten(0, groups)  # [kv, g, N, hd]
        prefix = [Keys(*(_of_window(x, window, count) for x in (keys, values))) for window in windows]
        own_scores = _with_own(asked, own_keys, _score_dtype(asked))  # [kv, g, N, k]
        blocks = _blocks(windows, count)
        keeps = len(queries) * sum(block.queries * block.seen for block in blocks) <= _KEPT_ELEMENTS
        kept, mixed, beside = list[Tensor](), list[Tensor](), list[Tensor]()
        for block, question, own_score in zip(blocks, *_by_block(blocks, asked, own_scores), strict=True):
            k, v = (x[:, : block.seen] for x in prefix[block.window])
            shares = _shares(question, own_score, k)
            mixed.append(_times(shares, v))
            beside.append(shares[..., :count].clone())  # not a view, which would keep all shares
            if keeps:
                kept.append(shares)
        out, own_shares = torch.cat(mixed, 2), torch.cat(beside, 2)
        for share, v in zip(_columns(own_shares), own_values, strict=True):
            out.addcmul_(share, v[:, None])
        ctx.windows, ctx.blocks, ctx.tokens, ctx.kept = windows, blocks, keys.shape[1], len(kept)
        flat = [x for pair in prefix for x in pair]
        ctx.save_for_backward(asked, own_scores, own_shares, *kept, *flat, *own)
        return out.flatten(0, 1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        asked, own_scores, own_shares, *rest = ctx.saved_tensors
        first, last = ctx.kept, ctx.kept + 2 * len(ctx.windows)
        kept, flat, own = rest[:first], rest[first:last], rest[last:]
        prefix = [Keys(k, v) for k, v in zip(flat[::2], flat[1::2], strict=True)]
        own_keys, own_values = own[::2], own[1::2]
        given = gradients[0].contiguous().view_as(asked)
        d_own_shares = _with_own(given, own_values, given.dtype)
        d_prefix = dict[int, Keys]()
        d_queries, beside = list[Tensor](), list[Tensor]()
        ours = list(zip(*_by_block(ctx.blocks, asked, given, own_scores, d_own_shares), strict=True))
        # From the last, which sees all keys of its window: the others add to what it makes.
        for number, block in reversed(list(enumerate(ctx.blocks))):
            question, incoming, own_score, d_own_share = ours[number]
            k, v = (x[:, : block.seen] for x in prefix[block.window])
            shares = kept[number] if kept else _shares(question, own_score, k)
            d_shares = _times(incoming, v.transpose(1, 2))
            d_shares[..., : len(own_keys)] = d_own_share
            d_scores = torch.ops.aten._softmax_backward_data(d_shares, shares, -1, shares.dtype)
            beside.append(d_scores[..., : len(own_keys)].clone())
            d_queries.append(_times(d_scores, k))
            d_block = Keys(_over_queries(d_scores, question), _over_queries(shares, incoming))
            for whole, part in zip(d_prefix.setdefault(block.window, d_block), d_block, strict=True):
                if whole is not part:
                    whole[:, : block.seen].add_(part)
        d_asked, d_own_scores = torch.cat(d_queries[::-1], 2), torch.cat(beside[::-1], 2)
        d_own: list[Tensor] = []
        for d_score, share, k in zip(_columns(d_own_scores), _columns(own_shares), own_keys, strict=True):
            d_asked.addcmul_(d_score, k[:, None])
            d_own += [_over_group(d_score * asked), _over_group(share * given)]
        d_asked.mul_(asked.shape[-1] ** -0.5)
        d_keys, d_values = (asked.new_zeros(len(asked), ctx.tokens, asked.shape[-1]) for _ in range(2))
        for number, window in enumerate(ctx.windows):
            d_keys[:, window.keys], d_values[:, window.keys] = (
                x[:, len(own_keys) :] for x in d_prefix[number]
            )
        return d_asked.flatten(0, 1), d_keys, d_values, None, *d_own


def _by_block(blocks: Sequence[_Block], *tensors: Tensor) -> list[tuple[Tensor, ...]]:
    """Each `[kv, g, N, x]` cut into the blocks' `[kv, g, b, x]`."""
    sizes = [block.queries for block in blocks]
    return [x.split(sizes, 2) for x in tensors]


def _of_window(x: Tensor, window: Window, own: int) -> Tensor:
    """`[kv, k + m, hd]`: as many rows of zeros as there are own keys, then what the window's queries see."""
    return functional.pad(x[:, window.keys], (0, 0, own, 0))


def _with_own(asked: Tensor, own: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """`[kv, g, N, k]`: each query with its own key of each step."""
    found = [(asked * x[:, None]).sum(-1, dtype=dtype) for x in own]
    return torch.stack(found, -1) if found else asked.new_empty(*asked.shape[:-1], 0, dtype=dtype)


def _columns(own: Tensor) -> tuple[Tensor, ...]:
    """`[kv, g, N, 1]` for each own key, of `[kv, g, N, k]`."""
    return own.unsqueeze(-2).unbind(-1)


def _shares(asked: Tensor, own_scores: Tensor, keys: Tensor) -> Tensor:
    """`[kv, g, b, k + m]`; nothing of a key that stands behind its query: among the last b."""
    scores = _times(asked, keys.transpose(1, 2)).to(own_scores.dtype)
    scores[..., : own_scores.shape[-1]] = own_scores
    size = asked.shape[2]
    scores[..., -size:].add_(_behind(scores.dtype, scores.device)[:size, :size])
    return scores.softmax(-1).to(asked.dtype)


@functools.lru_cache
def _behind(dtype: torch.dtype, device: torch.device) -> Tensor:
    """Minus infinity for keys of the queries' own positions that stand behind each: `[_BLOCK, _BLOCK]`."""
    return torch.full((_BLOCK, _BLOCK), float("-inf"), dtype=dtype, device=device).triu(1)


def _score_dtype(x: Tensor) -> torch.dtype:
    """At least float32."""
    return torch.promote_types(x.dtype, torch.float32)


def _times(left: Tensor, right: Tensor) -> Tensor:
    """`[kv, g, b, x] @ [kv, x, y]` in one multiplication for each kv head."""
    return torch.bmm(left.flatten(1, 2), right).view(*left.shape[:3], right.shape[-1])


def _over_queries(left: Tensor, right: Tensor) -> Tensor:
    """`[kv, g, b, m]` and `[kv, g, b, hd]` to `[kv, m, hd]`."""
    return torch.bmm(left.flatten(1, 2).transpose(1, 2), right.flatten(1, 2))


def _over_group(x: Tensor) -> Tensor:
    """`[kv, g, N, hd]`, of queries that share a key, to `[kv, N, hd]`."""
    return x.sum(1) if x.shape[1] > 1 else x.squeeze(1)
