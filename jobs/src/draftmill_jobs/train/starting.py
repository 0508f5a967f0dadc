"""What a training starts from: a checkpoint whose map, rope and eps are kept, or a fresh drafter."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from numpy.typing import NDArray
from torch import Tensor

from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.train.draft_config import DraftConfig, DraftConfigError, read_config
from draftmill_jobs.train.layers import LayerIdError, entering_layer_ids, is_deepseek_family
from draftmill_jobs.train.model import Drafter
from draftmill_jobs.train.rope import Rope, RopeError
from draftmill_jobs.train.settings import Init, Scratch
from draftmill_jobs.train.target import TargetTensors, text_config
from draftmill_jobs.train.tensors import TensorFolder, TensorFolderError
from draftmill_jobs.train.vocabulary import DraftVocabulary, VocabularyError, choose_vocabulary

NOT_TRAINED: Final = frozenset({"embed_tokens.weight", "d2t", "t2d"})
"""Tensors of a checkpoint that are no part of a drafter's state."""
_DEVIATION: Final = 0.02  # of fresh weights


@dataclass(frozen=True, eq=False)
class Start:
    """A drafter before its first step.

    Attributes:
        weights: The trained tensors, float32, by their names in the flat format.
    """

    config: DraftConfig
    vocabulary: DraftVocabulary
    weights: Mapping[str, Tensor]


@dataclass(frozen=True)
class StoreShape:
    """What a store has for each token.

    Attributes:
        layer_ids: Of the states that enter the drafter, "entering layer".
        hidden_size: Of each.
        layers: L, of the target.
    """

    layer_ids: tuple[int, ...]
    hidden_size: int
    layers: int


def warm_start(init: Init, target: TargetTensors, store: StoreShape) -> Start:
    """Reads a checkpoint, flat or of speculators.

    Raises:
        JobRefusedError: It is no drafter that can be trained, or not one of this target and these states.
    """
    folder = Path(init.path)
    try:
        written = read_config(json.loads((folder / "config.json").read_text()))
        tensors = TensorFolder(folder)
        vocabulary = _vocabulary(tensors, written.config)
        if written.layer_ids is not None:
            ids = entering_layer_ids(
                written.layer_ids,
                layers=store.layers,
                target_is_deepseek=is_deepseek_family(target.config),
                meaning=written.layer_meaning or init.layer_ids,
            )
            _expect(ids, store.layer_ids, "layer ids (entering layer)", folder)
    except (OSError, DraftConfigError, LayerIdError, TensorFolderError, VocabularyError) as error:
        raise JobRefusedError("InitNotUsable", f"{folder}: {error}") from error
    config = written.config
    _expect(config.vocab_size, target.vocab_size, "vocabulary", folder)
    _expect(config.hidden_size, target.embeddings.shape[1], "hidden size", folder)
    _expect(config.target_hidden_size, store.hidden_size, "width of the target's states", folder)
    _expect(config.states, len(store.layer_ids), "number of states", folder)
    return Start(config, vocabulary, _weights(tensors, config, folder))


def fresh_start(
    scratch: Scratch, target: TargetTensors, store: StoreShape, counts: NDArray[Any], seed: int
) -> Start:
    """A drafter in the target's proportions, with lm_head from the target's rows.

    Args:
        scratch: What shall differ from the target.
        target: The target.
        store: The states.
        counts: int64[V], how often each token occurs in what is trained on.
        seed: Of the weights.

    Raises:
        JobRefusedError: The target's shape cannot be a drafter's, or the vocabulary cannot be chosen.
    """
    text = text_config(target.config)
    try:
        vocabulary = choose_vocabulary(counts, scratch.draft_vocab_size)
        heads = scratch.heads or int(text["num_attention_heads"])
        config = DraftConfig(
            hidden_size=store.hidden_size,
            intermediate_size=scratch.intermediate_size or int(text["intermediate_size"]),
            heads=heads,
            kv_heads=scratch.kv_heads or min(heads, int(text.get("num_key_value_heads") or heads)),
            head_dim=int(text.get("head_dim") or store.hidden_size // heads),
            vocab_size=target.vocab_size,
            draft_vocab_size=scratch.draft_vocab_size,
            target_hidden_size=store.hidden_size,
            rms_norm_eps=target.norm_eps,
            max_position_embeddings=int(text["max_position_embeddings"]),
            rope=Rope.from_config(text),
            states=len(store.layer_ids),
            bos_token_id=text.get("bos_token_id"),
            eos_token_id=text.get("eos_token_id"),
        )
    except (KeyError, RopeError, DraftConfigError, VocabularyError) as error:
        raise JobRefusedError(
            "ScratchNotPossible", f"a drafter cannot be made for this target: {error}"
        ) from error
    weights = {
        name: _fresh(shape, torch.Generator().manual_seed(seed + number))
        for number, (name, shape) in enumerate(expected_shapes(config).items())
    }
    weights["lm_head.weight"] = target.head[torch.from_numpy(vocabulary.target_ids)].float()
    return Start(config, vocabulary, weights)


def expected_shapes(config: DraftConfig) -> dict[str, tuple[int, ...]]:
    """The trained tensors of a drafter, by name."""
    with torch.device("meta"):
        drafter = Drafter(config, torch.empty(config.vocab_size, config.hidden_size))
    return {name: tuple(tensor.shape) for name, tensor in drafter.state_dict().items()}


def _fresh(shape: Sequence[int], made: torch.Generator) -> Tensor:
    return torch.ones(shape) if len(shape) == 1 else torch.randn(shape, generator=made) * _DEVIATION


def _vocabulary(tensors: TensorFolder, config: DraftConfig) -> DraftVocabulary:
    if "d2t" in tensors:
        vocabulary = DraftVocabulary.from_offsets(tensors.read("d2t").numpy(), config.vocab_size)
        if len(vocabulary) == config.draft_vocab_size:
            return vocabulary
        raise VocabularyError(f"d2t has {len(vocabulary)} ids, draft_vocab_size is {config.draft_vocab_size}")
    if config.draft_vocab_size == config.vocab_size:
        return DraftVocabulary.of_everything(config.vocab_size)
    raise VocabularyError(f"there is no d2t, which {config.draft_vocab_size} ids of {config.vocab_size} need")


def _weights(tensors: TensorFolder, config: DraftConfig, folder: Path) -> dict[str, Tensor]:
    """Every expected tensor and no other, `layers.0.` read as `midlayer.`."""
    named = {name.removeprefix("model.").replace("layers.0.", "midlayer."): name for name in tensors.names()}
    expected = expected_shapes(config)
    unlike = sorted((named.keys() - NOT_TRAINED) ^ expected.keys())
    if unlike:
        raise JobRefusedError(
            "InitNotUsable", f"{folder} lacks, or has beyond a drafter's: {', '.join(unlike[:5])}"
        )
    weights = {name: tensors.read(named[name]).float() for name in expected}
    for name, tensor in weights.items():
        _expect(tuple(tensor.shape), expected[name], f"shape of {name}", folder)
    return weights


def _expect(found: object, wanted: object, what: str, folder: Path) -> None:
    if found != wanted:
        raise JobRefusedError("InitDiffers", f"{folder}: {what} is {found}, where {wanted} is needed")
