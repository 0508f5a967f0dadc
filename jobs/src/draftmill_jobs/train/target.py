"""The few tensors of the target that training needs: embeddings, final norm and lm_head.

They are found by the ends of their names, so a target inside a multimodal model is found as well, and
only they are read: 547 GB of other weights stay on disk.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from torch import Tensor

from draftmill_jobs.train.tensors import TensorFolder

_EMBEDDINGS: Final = "embed_tokens.weight"
_HEAD: Final = "lm_head.weight"
_ROOT_MEAN_SQUARE: Final = (  # families whose final norm is x / rms(x) * weight
    *("llama", "mistral", "mixtral", "ministral", "qwen2", "qwen3", "deepseek", "kimi", "minimax", "smollm3"),
    *("glm4", "gpt_oss", "olmo2", "phi3", "exaone4", "granite", "seed_oss", "ernie4_5", "mimo"),
)
_ONE_MORE: Final = ("qwen3_next", "qwen3_5")  # whose final norm multiplies by 1 + weight
_BENT_LOGITS: Final = ("final_logit_softcapping", "logits_scaling", "logit_scale")


class TargetError(ValueError):
    """A target whose next-token distribution cannot be rebuilt from its last state."""


@dataclass(frozen=True)
class TargetShape:
    """What is known of the target before its tensors are read.

    Attributes:
        config: Its config.json.
        vocab_size: V, the rows of lm_head.
        hidden_size: H, of its states.
        embedding_size: Width of its embeddings.
        norm_eps: What its final norm adds to the mean square.
    """

    config: Mapping[str, Any]
    vocab_size: int
    hidden_size: int
    embedding_size: int
    norm_eps: float


@dataclass(frozen=True, eq=False)
class TargetTensors:
    """What is needed of the target, on the CPU, as it is stored.

    Attributes:
        config: Its config.json.
        embeddings: `[V, H]`.
        norm: `[H]`, weight of the final RMSNorm.
        norm_eps: What is added to the mean square.
        head: `[V, H]`, rows of lm_head; the embeddings when the two are tied.
    """

    config: Mapping[str, Any]
    embeddings: Tensor
    norm: Tensor
    norm_eps: float
    head: Tensor

    @property
    def vocab_size(self) -> int:
        """V, the rows of lm_head."""
        return len(self.head)

    @property
    def hidden_size(self) -> int:
        """H."""
        return len(self.norm)


def text_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config with the text part of a multimodal model on top."""
    return {**config, **(config.get("text_config") or {})}


def read_target_config(folder: Path) -> dict[str, Any]:
    """A target's config.json.

    Raises:
        TargetError: It is not there, or no JSON object.
    """
    try:
        config = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError) as error:
        raise TargetError(f"{folder} is no model's folder: {error}") from error
    if not isinstance(config, dict):
        raise TargetError(f"{folder}/config.json is no object")
    return config


def look_at_target(folder: Path) -> TargetShape:
    """What a target's folder holds, by its config and the headers of its files.

    Raises:
        TargetError: A tensor is missing or its logits are not norm and lm_head alone.
        TensorFolderError: The files cannot be read.
    """
    found = _find(folder)
    return TargetShape(
        config=found.config,
        vocab_size=found.tensors.shape(found.head)[0],
        hidden_size=found.tensors.shape(found.norm)[0],
        embedding_size=found.tensors.shape(found.embeddings)[1],
        norm_eps=found.norm_eps,
    )


def read_target(folder: Path) -> TargetTensors:
    """Reads a target's folder.

    Raises:
        TargetError: A tensor is missing or its logits are not norm and lm_head alone.
        TensorFolderError: The files cannot be read.
    """
    found = _find(folder)
    table = found.tensors.read(found.embeddings)
    return TargetTensors(
        config=found.config,
        embeddings=table,
        norm=found.tensors.read(found.norm),
        norm_eps=found.norm_eps,
        head=table if found.head == found.embeddings else found.tensors.read(found.head),
    )


@dataclass(frozen=True)
class _Found:
    """A target's folder, and the names of the tensors in it."""

    config: dict[str, Any]
    tensors: TensorFolder
    embeddings: str
    norm: str
    head: str
    norm_eps: float


def _find(folder: Path) -> _Found:
    config = read_target_config(folder)
    text = text_config(config)
    _check_logits(text)
    tensors = TensorFolder(folder)
    embeddings = _only(tensors, _EMBEDDINGS)
    prefix = embeddings.removesuffix(_EMBEDDINGS)  # model. or language_model.model.
    tied = bool(text.get("tie_word_embeddings")) and _HEAD not in " ".join(tensors.names())
    if "rms_norm_eps" not in text:
        raise TargetError(f"{folder}/config.json names no rms_norm_eps")
    return _Found(
        config=config,
        tensors=tensors,
        embeddings=embeddings,
        norm=f"{prefix}norm.weight",
        head=embeddings if tied else _only(tensors, _HEAD),
        norm_eps=float(text["rms_norm_eps"]),
    )


def _only(tensors: TensorFolder, ending: str) -> str:
    found = [name for name in tensors.names() if name == ending or name.endswith(f".{ending}")]
    if len(found) != 1:
        raise TargetError(
            f"the target has {len(found)} tensors named *{ending} {found or ''}; "
            "exactly one is needed, unquantised"
        )
    return found[0]


def _check_logits(text: Mapping[str, Any]) -> None:
    kind = str(text.get("model_type"))
    if kind.startswith(_ONE_MORE) or not kind.startswith(_ROOT_MEAN_SQUARE):
        raise TargetError(f"the final norm of a target of type {kind!r} is not known to be a plain RMSNorm")
    bent = [key for key in _BENT_LOGITS if text.get(key) not in (None, 1, 1.0)]
    if bent:
        raise TargetError(f"the target's logits are changed by {', '.join(bent)}, which is not supported")
