"""Rotary position embedding as checkpoints write it, in the older spelling and the newer one.

Older: `rope_theta` beside `rope_scaling: {rope_type | type, ...}`. Newer: `rope_parameters` with all of it.
Servers read one or the other, so both are written; when both are there they must agree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor

_PLAIN: Final = "default"
_KEYS: Final = {
    _PLAIN: frozenset[str](),
    "linear": frozenset({"factor"}),
    "llama3": frozenset(
        {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}
    ),
    "yarn": frozenset({"factor", "original_max_position_embeddings"}),
}
_DEFAULT_THETA: Final = 10_000.0


class RopeError(ValueError):
    """A rotary embedding that is contradictory, or of a kind that is not supported."""


@dataclass(frozen=True)
class Rope:
    """A rotary embedding.

    Attributes:
        theta: The base.
        scaling: With `rope_type`, one of linear, llama3 and yarn, and its parameters; empty for none.
    """

    theta: float
    scaling: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind not in _KEYS:
            raise RopeError(
                f"rope_type {self.kind!r} is not supported; supported are {', '.join(sorted(_KEYS))}"
            )
        if missing := _KEYS[self.kind] - self.scaling.keys():
            raise RopeError(f"rope_type {self.kind!r} needs {', '.join(sorted(missing))}")

    @property
    def kind(self) -> str:
        """default, linear, llama3 or yarn."""
        return str(self.scaling.get("rope_type", _PLAIN))

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Rope:
        """Reads either spelling of a config.json.

        Raises:
            RopeError: The two spellings differ, or the kind is not supported.
        """
        found = []
        if config.get("rope_parameters"):
            parameters = dict(config["rope_parameters"])
            theta = parameters.pop("rope_theta", config.get("rope_theta", _DEFAULT_THETA))
            found.append(cls(float(theta), _scaling(parameters, config)))
        if config.get("rope_scaling") or "rope_theta" in config:
            theta = config.get("rope_theta", found[0].theta if found else _DEFAULT_THETA)
            found.append(cls(float(theta), _scaling(dict(config.get("rope_scaling") or {}), config)))
        if len(found) > 1 and found[0] != found[1]:
            raise RopeError(f"rope_parameters say {found[0]}, rope_theta and rope_scaling say {found[1]}")
        return found[0] if found else cls(_DEFAULT_THETA)

    def to_config(self) -> dict[str, Any]:
        """Both spellings."""
        scaling = dict(self.scaling)
        return {
            "rope_theta": self.theta,
            "rope_scaling": scaling or None,
            "rope_parameters": {"rope_theta": self.theta, "rope_type": self.kind, **scaling},
        }

    def tables(self, positions: int, head_dim: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines, float32 `[positions, head_dim]`, both halves of a head alike."""
        frequencies, factor = self._frequencies(head_dim)
        angles = torch.outer(torch.arange(positions, dtype=torch.float64), frequencies)  # [P, hd/2]
        angles = torch.cat([angles, angles], dim=-1)
        return (angles.cos() * factor).float(), (angles.sin() * factor).float()

    def _frequencies(self, head_dim: int) -> tuple[Tensor, float]:
        """Radians for each position, float64 `[hd/2]`, and what the tables are multiplied by."""
        plain = self.theta ** -(torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
        match self.kind:
            case "linear":
                return plain / self.scaling["factor"], 1.0
            case "llama3":
                return _llama3(plain, self.scaling), 1.0
            case "yarn":
                return _yarn(plain, self.theta, self.scaling), _yarn_factor(self.scaling)
            case _:
                return plain, 1.0


def _scaling(given: dict[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    kind = given.pop("rope_type", None) or given.get("type") or _PLAIN
    given.pop("type", None)
    if kind == _PLAIN:
        return {}
    if "original_max_position_embeddings" in _KEYS.get(kind, ()):
        given.setdefault("original_max_position_embeddings", config.get("max_position_embeddings"))
    return {"rope_type": kind, **given}


def _llama3(plain: Tensor, scaling: Mapping[str, Any]) -> Tensor:
    """Long waves are stretched, short ones kept, those between blended (Llama 3.1)."""
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    turns = scaling["original_max_position_embeddings"] * plain / (2 * math.pi)  # in the original context
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return _blended(plain, kept, scaling["factor"])


def _yarn(plain: Tensor, theta: float, scaling: Mapping[str, Any]) -> Tensor:
    """Interpolates by wave length (Peng et al., YaRN, section 3.2)."""
    dimensions, original = 2 * len(plain), scaling["original_max_position_embeddings"]

    def dimension_of(turns: float) -> float:
        return dimensions * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = dimension_of(scaling.get("beta_fast") or 32), dimension_of(scaling.get("beta_slow") or 1)
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dimensions - 1)
    ramp = (torch.arange(len(plain), dtype=torch.float64) - low) / max(high - low, 0.001)
    kept = 1 - ramp.clamp(0, 1)
    return _blended(plain, kept, scaling["factor"])


def _blended(plain: Tensor, kept: Tensor, factor: float) -> Tensor:
    """Frequencies as they are where `kept` is 1, and slower by the factor where it is 0."""
    return torch.lerp(plain / factor, plain, kept)


def _yarn_factor(scaling: Mapping[str, Any]) -> float:
    if scaling.get("attention_factor") is not None:
        return float(scaling["attention_factor"])

    def stretch(weight: float) -> float:
        return 0.1 * weight * math.log(scaling["factor"]) + 1 if scaling["factor"] > 1 else 1.0

    if scaling.get("mscale") and scaling.get("mscale_all_dim"):
        return stretch(scaling["mscale"]) / stretch(scaling["mscale_all_dim"])
    return stretch(1.0)
