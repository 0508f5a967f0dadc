"""Attention of training-time test: the causal prefix of step 0, and of each later step a query's own key.

Three ways to compute it. `plain_attention` writes it down: it is what the others are tested against.
`BlockAttention`, for CPUs, never forms a mask over a batch: each document's queries ask in blocks, each
block exactly the keys that it may see, and the few own keys join by log-sum-exp. Its memory is bounded, then
grows with the number of queries, not with its square. `draftmill_jobs.train.flex` is for GPUs.
"""

from __future__ import annotations

import functools
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
    """Forward keeps the output, log-sum-exps and, of short rows, the shares; backward forms others anew.

    Shares of the prefix keys are a softmax over them alone. What part of a query's attention goes to the
    prefix at all follows from the log-sum-exps over prefix and own keys; it scales outputs and incoming
    gradients, which are small, and not the shares. The backward pass is that of ordinary attention
    (Dao et al., FlashAttention, section 3.1).
    """

    @staticmethod
    def forward(
        ctx: Any, queries: Tensor, keys: Tensor, values: Tensor, windows: Sequence[Window], *own: Tensor
    ) -> Tensor:
        asked = _grouped(queries * queries.shape[-1] ** -0.5, keys.shape[1])  # [kv, g, N, hd]
        keys, values = (_heads_first(x).contiguous() for x in (keys, values))  # [kv, T, hd]
        own_scores = _own_scores(asked, own[::2])  # [k, kv, g, N]
        out, seen = torch.empty_like(asked), torch.empty_like(asked[..., 0], dtype=_score_dtype(asked))
        blocks = list(_blocks(windows))
        elements = queries.shape[1] * sum(block.scores for block in blocks)
        kept: list[Tensor] = []
        for block in blocks:
            scores = _scores(asked, keys, block)  # [kv, g, b, m]
            shares = scores.softmax(-1)
            # The greatest score and its share tell the log-sum-exp: share = exp(score - log-sum-exp).
            seen[:, :, block.rows] = scores.amax(-1) - shares.amax(-1).log_()
            shares = shares.to(values.dtype)
            out[:, :, block.rows] = _times(shares, values[:, block.keys])
            if elements <= _KEPT_ELEMENTS:
                kept.append(shares)
        total = torch.cat([seen[None], own_scores]).logsumexp(0)  # [kv, g, N]
        part = (seen - total).exp_()
        out.mul_(part[..., None].to(out.dtype))
        for score, v in zip(own_scores, own[1::2], strict=True):
            out.addcmul_((score - total).exp_()[..., None].to(v.dtype), _heads_first(v)[:, None])
        ctx.blocks, ctx.kept = blocks, len(kept)
        ctx.save_for_backward(asked, keys, values, out, seen, total, own_scores, *kept, *own)
        return _ungrouped(out)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        asked, keys, values, out, seen, total, own_scores, *rest = ctx.saved_tensors
        kept, own = rest[: ctx.kept], rest[ctx.kept :]
        given = _grouped(gradients[0], len(keys))
        mean = (given * out).sum(-1, dtype=total.dtype)  # [kv, g, N]
        part = (seen - total).exp_()
        reaching, shift = given * part[..., None].to(given.dtype), (part * mean)[..., None]
        d_asked = torch.empty_like(asked)
        d_keys, d_values = torch.zeros_like(keys), torch.zeros_like(values)  # [kv, T, hd]
        for number, block in enumerate(ctx.blocks):
            incoming, question = (x[:, :, block.rows] for x in (reaching, asked))
            shares = kept[number] if kept else _scores(asked, keys, block).softmax(-1).to(values.dtype)
            d_values[:, block.keys] += _over_queries(shares, incoming)
            d_shares = _times(incoming, values[:, block.keys].transpose(1, 2))
            d_scores = d_shares.sub_(shift[:, :, block.rows]).mul_(shares)
            d_asked[:, :, block.rows] = _times(d_scores, keys[:, block.keys])
            d_keys[:, block.keys] += _over_queries(d_scores, question)
        d_own: list[Tensor] = []
        for score, k, v in zip(own_scores, own[::2], own[1::2], strict=True):
            share = (score - total).exp_()  # [kv, g, N]
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
    scores = _times(asked[:, :, block.rows], keys[:, block.keys].transpose(1, 2)).to(_score_dtype(asked))
    scores[..., -block.queries :].masked_fill_(_behind(block.queries, asked.device), float("-inf"))
    return scores


@functools.lru_cache(maxsize=2 * _BLOCK)
def _behind(queries: int, device: torch.device) -> Tensor:
    """Of the keys of the queries' own positions, those that stand behind each: bool `[b, b]`."""
    return torch.ones(queries, queries, dtype=torch.bool, device=device).triu(1)


def _score_dtype(x: Tensor) -> torch.dtype:
    """At least float32."""
    return torch.promote_types(x.dtype, torch.float32)


def _times(left: Tensor, right: Tensor) -> Tensor:
    """`[kv, g, b, x] @ [kv, x, y]` in one multiplication for each kv head."""
    return torch.bmm(left.flatten(1, 2), right).view(*left.shape[:3], right.shape[-1])


def _over_queries(left: Tensor, right: Tensor) -> Tensor:
    """`[kv, g, b, m]` and `[kv, g, b, hd]` to `[kv, m, hd]`."""
    return torch.bmm(left.flatten(1, 2).transpose(1, 2), right.flatten(1, 2))
