"""Attention of training-time test: the causal prefix of step 0, and of each later step a query's own key.

Three ways to compute it. `plain_attention` writes it down: it is what the others are tested against.
`BlockAttention`, for CPUs, never forms a mask over a batch: each document's queries ask in blocks, each
block exactly the keys that it may see, and the few own keys join by log-sum-exp. Its memory is bounded, then
grows with the number of queries, not with its square. `draftmill_jobs.train.flex` is for GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

import torch
from torch import Tensor

from draftmill_jobs.train.layout import Layout, Window

_BLOCK: Final = 128  # queries; smaller ones see fewer masked keys, larger ones multiply faster
_KEPT_ELEMENTS: Final = 1 << 24  # shares of one step that are kept for its backward pass: 64 MiB in float32


class Keys(NamedTuple):
    """Keys, turned to their places, and values: `[T, kv heads, hd]` each."""

    keys: Tensor
    values: Tensor


class TttAttention(Protocol):
    """Mixes values for queries `[N, heads, hd]`: returns `[N, heads, hd]`.

    `prefix` are all T keys of step 0, `own` the N keys of each later step up to the queries' own.
    """

    def __call__(self, queries: Tensor, prefix: Keys, own: Sequence[Keys], layout: Layout) -> Tensor:
        """See above."""


def plain_attention(queries: Tensor, prefix: Keys, own: Sequence[Keys], layout: Layout) -> Tensor:
    """The definition, with a mask over everything."""
    group = queries.shape[1] // prefix.keys.shape[1]
    (keys, values), *later = (Keys(*(x.repeat_interleave(group, 1) for x in pair)) for pair in (prefix, *own))
    allowed = torch.zeros(len(queries), len(keys), dtype=torch.bool, device=queries.device)
    for window in layout.windows:
        for i in range(window.queries):
            allowed[window.first_row + i, window.first_key : window.first_query + i + 1] = True
    scale = queries.shape[-1] ** -0.5
    scores = torch.einsum("nhd,thd->hnt", queries, keys).masked_fill(~allowed, float("-inf"))
    diagonal = [torch.einsum("nhd,nhd->hn", queries, x.keys)[..., None] for x in later]
    shares = (torch.cat([scores, *diagonal], -1) * scale).softmax(-1)  # [h, N, T + k]
    mixed = torch.einsum("hnt,thd->nhd", shares[..., : len(keys)], values)
    for i, x in enumerate(later):
        mixed = mixed + shares[..., len(keys) + i].T[..., None] * x.values
    return mixed


def block_attention(queries: Tensor, prefix: Keys, own: Sequence[Keys], layout: Layout) -> Tensor:
    """The same in blocks."""
    flat = [tensor for keys in own for tensor in keys]
    mixed: Tensor = _BlockAttention.apply(  # type: ignore[no-untyped-call]
        queries, *prefix, layout.windows, *flat
    )
    return mixed


class _Block(NamedTuple):
    """Consecutive queries of a document, as rows, and the keys up to the last of them, as positions."""

    rows: slice
    keys: slice

    @property
    def queries(self) -> int:
        return int(self.rows.stop - self.rows.start)

    @property
    def scores(self) -> int:
        """How many there are, of one head."""
        return self.queries * int(self.keys.stop - self.keys.start)


def _blocks(windows: Sequence[Window]) -> Iterator[_Block]:
    for window in windows:
        for start in range(0, window.queries, _BLOCK):
            stop = min(start + _BLOCK, window.queries)
            rows = slice(window.first_row + start, window.first_row + stop)
            yield _Block(rows, slice(window.first_key, window.first_query + stop))


class _BlockAttention(torch.autograd.Function):
    """Forward keeps the output, the log-sum-exp and, of short rows, the shares; backward forms others anew.

    With the log-sum-exp over prefix and own keys together, shares of either part are exact by themselves, and
    so the backward pass of each is that of ordinary attention (Dao et al., FlashAttention, section 3.1).
    """

    @staticmethod
    def forward(
        ctx: Any, queries: Tensor, keys: Tensor, values: Tensor, windows: Sequence[Window], *own: Tensor
    ) -> Tensor:
        asked = _grouped(queries * queries.shape[-1] ** -0.5, keys.shape[1])  # [kv, g, N, hd]
        own_scores = _own_scores(asked, own[::2])  # [k, kv, g, N]
        out, total = torch.empty_like(asked), torch.empty_like(asked[..., 0], dtype=_score_dtype(asked))
        blocks = list(_blocks(windows))
        elements = queries.shape[1] * sum(block.scores for block in blocks)
        kept: list[Tensor] = []
        for block in blocks:
            scores = _scores(asked, keys, block)  # [kv, g, b, m]
            mine = own_scores[..., block.rows]  # [k, kv, g, b]
            top = torch.cat([mine, scores.amax(-1)[None]]).amax(0)
            shares = scores.sub_(top[..., None]).exp_()
            weight = shares.sum(-1) + (mine - top).exp().sum(0)
            shares = shares.div_(weight[..., None]).to(values.dtype)
            out[:, :, block.rows] = _times(shares, values[block.keys].transpose(0, 1))
            total[:, :, block.rows] = top + weight.log()
            if elements <= _KEPT_ELEMENTS:
                kept.append(shares)
        for score, v in zip(own_scores, own[1::2], strict=True):
            out.addcmul_((score - total).exp()[..., None].to(v.dtype), _heads_first(v)[:, None])
        ctx.blocks, ctx.kept = blocks, len(kept)
        ctx.save_for_backward(asked, keys, values, out, total, own_scores, *kept, *own)
        return _ungrouped(out)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        asked, keys, values, out, total, own_scores, *rest = ctx.saved_tensors
        kept, own = rest[: ctx.kept], rest[ctx.kept :]
        given = _grouped(gradients[0], keys.shape[1])
        mean = (given * out).sum(-1, dtype=total.dtype)  # [kv, g, N]
        d_asked = torch.empty_like(asked)
        d_keys, d_values = (torch.zeros_like(x.transpose(0, 1)) for x in (keys, values))  # [kv, T, hd]
        for number, block in enumerate(ctx.blocks):
            incoming, question = (x[:, :, block.rows] for x in (given, asked))
            if kept:
                shares = kept[number]
            else:
                scores = _scores(asked, keys, block).sub_(total[:, :, block.rows, None])
                shares = scores.exp_().to(values.dtype)
            d_values[:, block.keys] += _over_queries(shares, incoming)
            d_shares = _times(incoming, values[block.keys].permute(1, 2, 0))
            d_scores = d_shares.sub_(mean[:, :, block.rows, None]).mul_(shares)
            d_asked[:, :, block.rows] = _times(d_scores, keys[block.keys].transpose(0, 1))
            d_keys[:, block.keys] += _over_queries(d_scores, question)
        d_own: list[Tensor] = []
        for score, k, v in zip(own_scores, own[::2], own[1::2], strict=True):
            share = (score - total).exp()  # [kv, g, N]
            d_score = share * ((given * _heads_first(v)[:, None]).sum(-1) - mean)
            d_score, share = (x[..., None].to(given.dtype) for x in (d_score, share))
            d_asked.addcmul_(d_score, _heads_first(k)[:, None])
            d_own += [(weight * x).sum(1).transpose(0, 1) for weight, x in ((d_score, asked), (share, given))]
        d_queries = _ungrouped(d_asked.mul_(asked.shape[-1] ** -0.5))
        return d_queries, d_keys.transpose(0, 1), d_values.transpose(0, 1), None, *d_own


def _grouped(heads: Tensor, kv_heads: int) -> Tensor:
    """`[N, heads, hd]` to `[kv, g, N, hd]`: queries that share a key stand together."""
    count, all_heads, size = heads.shape
    return heads.reshape(count, kv_heads, all_heads // kv_heads, size).permute(1, 2, 0, 3).contiguous()


def _ungrouped(heads: Tensor) -> Tensor:
    return heads.permute(2, 0, 1, 3).flatten(1, 2)


def _heads_first(keys: Tensor) -> Tensor:
    return keys.transpose(0, 1)


def _own_scores(asked: Tensor, keys: Sequence[Tensor]) -> Tensor:
    """`[k, kv, g, N]`: each query with its own key of each step."""
    scores = [(asked * _heads_first(k)[:, None]).sum(-1, dtype=_score_dtype(asked)) for k in keys]
    return torch.stack(scores) if scores else asked.new_empty(0, *asked.shape[:-1])


def _scores(asked: Tensor, keys: Tensor, block: _Block) -> Tensor:
    """`[kv, g, b, m]`, minus infinity where a key stands behind its query: among the last b."""
    scores = _times(asked[:, :, block.rows], keys[block.keys].permute(1, 2, 0)).to(_score_dtype(asked))
    behind = torch.ones(block.queries, block.queries, dtype=torch.bool, device=asked.device).triu(1)
    scores[..., -block.queries :].masked_fill_(behind, float("-inf"))
    return scores


def _score_dtype(x: Tensor) -> torch.dtype:
    """At least float32."""
    return torch.promote_types(x.dtype, torch.float32)


def _times(left: Tensor, right: Tensor) -> Tensor:
    """`[kv, g, b, x] @ [kv, x, y]` in one multiplication for each kv head."""
    return torch.bmm(left.flatten(1, 2), right).view(*left.shape[:3], right.shape[-1])


def _over_queries(left: Tensor, right: Tensor) -> Tensor:
    """`[kv, g, b, m]` and `[kv, g, b, hd]` to `[kv, m, hd]`."""
    return torch.bmm(left.flatten(1, 2).transpose(1, 2), right.flatten(1, 2))
