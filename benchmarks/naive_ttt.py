"""EAGLE-3's training-time test as a plain loop: what one writes first, and what the trainer is compared with.

Rows are padded to one length, each step concatenates token and state and projects them, attention has a mask
over the whole square and one more column for each step, the teacher has logits over the target's whole
vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class NaiveBatch:
    """Rows `[B, T, ...]`, padded anywhere; padding is neither `real` nor answer."""

    token_ids: Tensor
    states: Tensor  # [B, T, 3H]
    last: Tensor  # [B, T, H], before the target's final norm
    mask: Tensor  # bool[B, T]: tokens of answers
    real: Tensor  # bool[B, T]


@dataclass(frozen=True)
class NaiveTarget:
    embeddings: Tensor  # [V, H]
    norm: Tensor  # [H]
    head: Tensor  # [V, H]
    target_ids: Tensor  # int64[DV]


@dataclass(frozen=True)
class NaiveShape:
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    theta: float


def naive_losses(
    weights: Mapping[str, Tensor], shape: NaiveShape, target: NaiveTarget, batch: NaiveBatch, steps: int
) -> list[Tensor]:
    """Mean divergence of each step."""
    ids, real = batch.token_ids, batch.real
    rows, length = ids.shape
    places = (real.cumsum(-1) - 1).clamp(min=0)  # from each row's first real token
    logits = functional.rms_norm(batch.last, batch.last.shape[-1:], target.norm, shape.eps) @ target.head.T
    teacher = logits[..., target.target_ids].log_softmax(-1)
    allowed = torch.ones(length, length, dtype=torch.bool).tril() & real[:, None, :]
    allowed |= torch.eye(length, dtype=torch.bool)  # padding sees itself, so that no row is empty
    hidden = batch.states @ weights["fc.weight"].T
    keys: list[Tensor] = []
    values: list[Tensor] = []
    losses = []
    for step in range(steps):
        embedded = target.embeddings[_left(ids, 1 + step)]
        layer = "midlayer"
        x = torch.cat(
            [
                _norm(embedded, weights[f"{layer}.input_layernorm.weight"], shape.eps),
                _norm(hidden, weights[f"{layer}.hidden_norm.weight"], shape.eps),
            ],
            -1,
        )
        q, k, v = (
            (x @ weights[f"{layer}.self_attn.{name}_proj.weight"].T)
            .view(rows, length, -1, shape.head_dim)
            .transpose(1, 2)
            for name in "qkv"
        )
        q, k = (_rope(heads, places + step, shape.theta) for heads in (q, k))
        group = shape.heads // shape.kv_heads
        keys.append(k.repeat_interleave(group, 1))
        values.append(v.repeat_interleave(group, 1))
        scores = (q @ keys[0].transpose(2, 3)).masked_fill(~allowed[:, None], float("-inf"))
        for own in keys[1:]:
            scores = torch.cat([scores, (q * own).sum(-1, keepdim=True)], -1)
        shares = (scores * shape.head_dim**-0.5).softmax(-1)
        mixed = shares[..., :length] @ values[0]
        for i, own in enumerate(values[1:]):
            mixed = mixed + shares[..., length + i, None] * own
        hidden = hidden + mixed.transpose(1, 2).flatten(2) @ weights[f"{layer}.self_attn.o_proj.weight"].T
        x = _norm(hidden, weights[f"{layer}.post_attention_layernorm.weight"], shape.eps)
        gate, up, down = (weights[f"{layer}.mlp.{name}_proj.weight"] for name in ("gate", "up", "down"))
        hidden = hidden + (functional.silu(x @ gate.T) * (x @ up.T)) @ down.T
        drafted = (
            _norm(hidden, weights["norm.weight"], shape.eps) @ weights["lm_head.weight"].T
        ).log_softmax(-1)
        wanted = _left(teacher, 1 + step)
        counts = _left(batch.mask, 1 + step) & _left(batch.mask, 2 + step) & real
        divergence = (wanted.exp() * (wanted - drafted)).sum(-1)
        losses.append((divergence * counts).sum() / counts.sum())
    return losses


def _left(x: Tensor, by: int) -> Tensor:
    """Rows moved to the left, zeros behind."""
    return torch.cat([x[:, by:], torch.zeros_like(x[:, :by])], 1)


def _norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def _rope(heads: Tensor, places: Tensor, theta: float) -> Tensor:
    half = heads.shape[-1] // 2
    frequencies = theta ** -(torch.arange(half, dtype=torch.float64) / half)
    angles = (places[..., None] * frequencies).to(torch.float64)[:, None]
    cos, sin = angles.cos().to(heads.dtype), angles.sin().to(heads.dtype)
    first, second = heads[..., :half], heads[..., half:]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
