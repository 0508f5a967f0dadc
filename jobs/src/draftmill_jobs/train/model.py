"""The drafter: EAGLE-3's one Llama layer, with the names of the flat format, unrolled for training-time test.

At step k, position t, the drafter sees the token t + 1 + k and its own output of step k - 1 at t (at step 0:
the target's states at t), stands at position t + k, and says what token t + 2 + k is. Its queries ask the
keys of step 0 up to t, and of each later step the key at t alone, which is what a server's cache holds when
it drafts from t.

Two things save work without changing a number. What of queries, keys and values comes from tokens is the
same for all steps, one position further each time: it is multiplied once. And steps are unrolled at
positions that some loss asks for; the rest gives keys and values of step 0 only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from draftmill_jobs.train.attention import Keys, TttAttention
from draftmill_jobs.train.draft_config import DraftConfig
from draftmill_jobs.train.feed_forward import Gated, feed_forward
from draftmill_jobs.train.heads import Heads, turned_heads
from draftmill_jobs.train.layout import Layout, PackedStates
from draftmill_jobs.train.norm import RootMeanSquareNorm
from draftmill_jobs.train.picking import Rows, pick_parts, pick_rows
from draftmill_jobs.train.products import linear

Tables: TypeAlias = tuple[Tensor, Tensor]


class SelfAttention(nn.Module):
    """Projections; the two halves of their inputs are the token and the fed back state."""

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
        self.q_proj = nn.Linear(2 * config.hidden_size, queries, bias=False)
        self.k_proj = nn.Linear(2 * config.hidden_size, keys, bias=False)
        self.v_proj = nn.Linear(2 * config.hidden_size, keys, bias=False)
        self.o_proj = nn.Linear(queries, config.hidden_size, bias=False)


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)


class MidLayer(nn.Module):
    """The layer's parts, by the names that they have on disk."""

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        size, eps = config.hidden_size, config.rms_norm_eps
        self.input_layernorm = RootMeanSquareNorm(size, eps)
        self.hidden_norm = RootMeanSquareNorm(size, eps)
        self.post_attention_layernorm = RootMeanSquareNorm(size, eps)
        self.self_attn = SelfAttention(config)
        self.mlp = FeedForward(config)


@dataclass(frozen=True, slots=True)
class _Weights:
    """Weights of one unrolling in the dtype of its products, cast and cut once for all steps."""

    token: Tensor  # [Q + 2K, H]: the token's half of q, k and v, times the weight of the token's norm
    state: Tensor  # [Q + 2K, H]: the state's half
    state_queries: Tensor  # [Q, H]: of it, what queries are made of
    state_keys: Tensor  # [2K, H]: what keys and values are made of
    output: Tensor  # [H, Q]
    gated: Gated


class Drafter(nn.Module):
    """An EAGLE-3 drafter; `state_dict` has exactly the trained tensors of the flat format.

    Args:
        config: Its shape.
        embeddings: `[V, H]`, the target's, frozen and not part of the state.
        dtype: In which the large products are computed; parameters and residual stream keep theirs.
    """

    def __init__(self, config: DraftConfig, embeddings: Tensor, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        if embeddings.shape != (config.vocab_size, config.hidden_size):
            raise ValueError(
                f"embeddings {list(embeddings.shape)} are not [{config.vocab_size}, {config.hidden_size}]"
            )
        self.config, self.dtype = config, dtype
        wide, eps = config.states * config.target_hidden_size, config.rms_norm_eps
        self.fc = nn.Linear(wide, config.hidden_size, bias=False)
        if config.fc_norm:
            self.fc_norm = nn.ModuleList(
                RootMeanSquareNorm(config.target_hidden_size, eps) for _ in range(config.states)
            )
        if config.norm_before_fc:
            self.input_norm = RootMeanSquareNorm(wide, eps)
        self.midlayer = MidLayer(config)
        self.norm = RootMeanSquareNorm(config.hidden_size, eps)
        self.lm_head = nn.Linear(config.hidden_size, config.draft_vocab_size, bias=False)
        self.embeddings: Tensor
        self.register_buffer("embeddings", embeddings, persistent=False)

    def unroll(
        self, batch: PackedStates, layout: Layout, attention: TttAttention, tables: Tables
    ) -> Iterator[Tensor]:
        """Yields the outputs of steps 0, 1, ...: `[N, H]` before `norm`, at the layout's query positions.

        Args:
            batch: Packed rows.
            layout: Where their documents and queries are, and how many steps.
            attention: How keys are asked.
            tables: Cosines and sines of at least `layout.places` places, `[places, hd]` each.
        """
        weights, config = self._weights(), self.config
        by_token = self._by_token(batch, layout, weights.token)

        hidden = self._joined(batch.states)  # [T, H]
        seen = self.midlayer.hidden_norm(hidden).to(self.dtype)
        by_state = linear(seen, weights.state_keys, next(by_token))  # [T, 2K]
        prefix = self._heads(by_state, tables, layout.key_places, 0, config.kv_heads)
        hidden, seen = (pick_rows(x, layout.query_positions) for x in (hidden, seen))  # [N, H]
        own = list[Keys]()
        for step in range(layout.steps):
            place = layout.query_places.moved(step)
            if step:
                seen = self.midlayer.hidden_norm(hidden).to(self.dtype)
                both = linear(seen, weights.state, next(by_token))  # [N, Q + 2K]
                found = self._heads(both, tables, place, config.heads, config.kv_heads)
                own.append(Keys(found.keys, found.values))
            else:
                asked = linear(seen, weights.state_queries, next(by_token))  # [N, Q]
                found = self._heads(asked, tables, place, config.heads, 0)
            mixed = attention(found.queries, Keys(prefix.keys, prefix.values), own, layout)
            hidden = self._after_attention(hidden, mixed.transpose(0, 1).flatten(1), weights)
            yield hidden
            if config.norm_output:
                hidden = self.norm(hidden)

    def _by_token(self, batch: PackedStates, layout: Layout, weight: Tensor) -> Iterator[Tensor]:
        """What tokens give to the prefix's keys and values, to step 0's queries, and to all of each later."""
        token = linear(self._token_inputs(batch, layout.steps), weight)  # [T + K, Q + 2K]
        queries = self.config.heads * self.config.head_dim
        first, rest, everything = slice(0, queries), slice(queries, None), slice(None)
        ahead = [layout.query_positions.moved(1 + step) for step in range(layout.steps)]
        parts: list[tuple[Rows | slice, slice]] = [(slice(1, len(batch.token_ids) + 1), rest)]
        parts += [(rows, everything if step else first) for step, rows in enumerate(ahead)]
        picked = deque(pick_parts(token, parts))
        while picked:
            yield picked.popleft()

    def _token_inputs(self, batch: PackedStates, steps: int) -> Tensor:
        """Embeddings `[T + K, H]` of root mean square one; those behind the last token are never counted.

        The norm's weight is in `_Weights.token`: embeddings are frozen, so no gradient goes through here.
        """
        ids = functional.pad(batch.token_ids, (0, steps))
        norm = self.midlayer.input_layernorm
        wide = self.embeddings[ids].to(norm.weight.dtype)
        return functional.rms_norm(wide, norm.weight.shape, eps=norm.eps).to(self.dtype)

    def _joined(self, states: Tensor) -> Tensor:
        """The target's states `[T, states, target H]`, joined by `fc` to `[T, H]`."""
        if self.config.fc_norm:
            states = torch.stack([norm(states[:, i]) for i, norm in enumerate(self.fc_norm)], dim=1)
        wide = states.flatten(1)
        if self.config.norm_before_fc:
            wide = self.input_norm(wide)
        joined = linear(wide.to(self.dtype), self.fc.weight.to(self.dtype))
        return joined.to(self.fc.weight.dtype)

    def _heads(self, projected: Tensor, tables: Tables, places: Rows, queries: int, keys: int) -> Heads:
        """Heads at their places."""
        cos, sin = (places.of_table(table).to(projected.dtype) for table in tables)
        return turned_heads(projected, cos, sin, queries=queries, keys=keys)

    def _after_attention(self, hidden: Tensor, mixed: Tensor, weights: _Weights) -> Tensor:
        """The rest of the layer, `[N, H]`; the residual stream is what was fed in, not normed."""
        hidden = linear(mixed, weights.output, hidden)
        return feed_forward(hidden, self.midlayer.post_attention_layernorm, weights.gated)

    def _weights(self) -> _Weights:
        attention, mlp, size = self.midlayer.self_attn, self.midlayer.mlp, self.config.hidden_size
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        halves = [projection.weight.split(size, dim=1) for projection in projections]
        token, state = (torch.cat(half) for half in zip(*halves, strict=True))
        queries = len(halves[0][0])
        rows = slice(0, queries), slice(queries, None), slice(None)
        state_queries, state_keys, state = pick_parts(
            state.to(self.dtype), [(cut, slice(None)) for cut in rows]
        )
        return _Weights(
            token=(token * self.midlayer.input_layernorm.weight).to(self.dtype),
            state=state,
            state_queries=state_queries,
            state_keys=state_keys,
            output=attention.o_proj.weight.to(self.dtype),
            gated=Gated(*(x.weight.to(self.dtype) for x in (mlp.gate_proj, mlp.up_proj, mlp.down_proj))),
        )
