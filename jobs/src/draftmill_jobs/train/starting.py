"""What a training starts from: a checkpoint whose map, rope and eps are kept, or a fresh drafter."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from draftmill_api.trainjob import JobInit
from draftmill_api.v1alpha1.draftertrain import Scratch
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.train.draft_config import DraftConfig, DraftConfigError, WrittenConfig, read_config
from draftmill_jobs.train.layers import LayerIdError, entering_layer_ids, is_deepseek_family
from draftmill_jobs.train.model import Drafter
from draftmill_jobs.train.rope import Rope, RopeError
from draftmill_jobs.train.target import TargetShape, text_config
from draftmill_jobs.train.tensors import TensorFolder, TensorFolderError
from draftmill_jobs.train.vocabulary import DraftVocabulary, VocabularyError, choose_vocabulary

NOT_TRAINED: Final = frozenset({"embed_tokens.weight", "d2t", "t2d"})
"""Tensors of a checkpoint that are no part of a drafter's state."""
_DEVIATION: Final = 0.02  # of fresh weights


@dataclass(frozen=True, eq=False)
class PlannedStart:
    """What a drafter will be, before any weight is read or made."""

    config: DraftConfig
    vocabulary: DraftVocabulary


@dataclass(frozen=True, eq=False)
class Start(PlannedStart):
    """A drafter before its first step.

    Attributes:
        weights: The trained tensors, float32, by their names in the flat format.
    """

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


def plan_warm_start(init: JobInit, target: TargetShape, store: StoreShape) -> PlannedStart:
    """Looks at a checkpoint, flat or of speculators.

    Raises:
        JobRefusedError: It is no drafter that can be trained, or not one of this target and these states.
    """
    folder = Path(init.path)
    try:
        written = read_draft_config(folder)
        tensors = TensorFolder(folder)
        vocabulary = read_vocabulary(tensors, written.config)
        if written.layer_ids is not None:
            ids = entering_layer_ids(
                written.layer_ids,
                layers=store.layers,
                target_is_deepseek=is_deepseek_family(target.config),
                meaning=written.layer_meaning or init.layer_convention,
            )
            _expect(ids, store.layer_ids, "layer ids (entering layer)", folder)
        config = written.config
        _expect(config.vocab_size, target.vocab_size, "vocabulary", folder)
        _expect(config.hidden_size, target.embedding_size, "hidden size", folder)
        _expect(config.target_hidden_size, store.hidden_size, "width of the target's states", folder)
        _expect(config.states, len(store.layer_ids), "number of states", folder)
        find_weights(tensors, config)
    except (DraftConfigError, LayerIdError, TensorFolderError, VocabularyError) as error:
        raise JobRefusedError("InitNotUsable", f"{folder}: {error}") from error
    return PlannedStart(config, vocabulary)


def plan_fresh_start(
    scratch: Scratch, target: TargetShape, store: StoreShape, counts: NDArray[np.int64]
) -> PlannedStart:
    """A drafter in the target's proportions.

    Args:
        scratch: What shall differ from the target.
        target: The target.
        store: The states.
        counts: int64[V], how often each token occurs in what is trained on.

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
    return PlannedStart(config, vocabulary)


def warm_start(init: JobInit, plan: PlannedStart) -> Start:
    """Reads the weights of a checkpoint that has been looked at.

    Raises:
        JobRefusedError: They are no longer what they were.
    """
    try:
        weights = read_weights(TensorFolder(Path(init.path)), plan.config)
    except TensorFolderError as error:
        raise JobRefusedError("InitNotUsable", f"{init.path}: {error}") from error
    return Start(plan.config, plan.vocabulary, weights)


def fresh_start(plan: PlannedStart, head: Tensor, seed: int) -> Start:
    """Makes the weights of a new drafter.

    Args:
        plan: What it will be.
        head: `[V, H]`, the target's lm_head, whose rows its own starts with.
        seed: Of all other weights.
    """
    weights = {
        name: _fresh(shape, torch.Generator().manual_seed(seed + number))
        for number, (name, shape) in enumerate(expected_shapes(plan.config).items())
    }
    weights["lm_head.weight"] = head[torch.from_numpy(plan.vocabulary.target_ids)].float()
    return Start(plan.config, plan.vocabulary, weights)


def read_draft_config(folder: Path) -> WrittenConfig:
    """A drafter's config.json.

    Raises:
        DraftConfigError: It is not there, or not one of a drafter that can be trained.
    """
    try:
        return read_config(json.loads((folder / "config.json").read_text()))
    except (OSError, ValueError) as error:
        if isinstance(error, DraftConfigError):
            raise
        raise DraftConfigError(f"config.json cannot be read: {error}") from error


def expected_shapes(config: DraftConfig) -> dict[str, tuple[int, ...]]:
    """The trained tensors of a drafter, by name."""
    with torch.device("meta"):
        drafter = Drafter(config, torch.empty(config.vocab_size, config.hidden_size))
    return {name: tuple(tensor.shape) for name, tensor in drafter.state_dict().items()}


def _fresh(shape: Sequence[int], made: torch.Generator) -> Tensor:
    return torch.ones(shape) if len(shape) == 1 else torch.randn(shape, generator=made) * _DEVIATION


def read_vocabulary(tensors: TensorFolder, config: DraftConfig) -> DraftVocabulary:
    """The map of a checkpoint.

    Raises:
        VocabularyError: It has none, and needs one; or one that cannot be.
    """
    if "d2t" in tensors:
        vocabulary = DraftVocabulary.from_offsets(tensors.read("d2t").numpy(), config.vocab_size)
        if len(vocabulary) == config.draft_vocab_size:
            return vocabulary
        raise VocabularyError(f"d2t has {len(vocabulary)} ids, draft_vocab_size is {config.draft_vocab_size}")
    if config.draft_vocab_size == config.vocab_size:
        return DraftVocabulary.of_everything(config.vocab_size)
    raise VocabularyError(f"there is no d2t, which {config.draft_vocab_size} ids of {config.vocab_size} need")


def read_weights(tensors: TensorFolder, config: DraftConfig) -> dict[str, Tensor]:
    """The trained tensors of a checkpoint, float32.

    Raises:
        TensorFolderError: One is missing, beyond a drafter's, or of another shape.
    """
    return {name: tensors.read(stored).float() for name, stored in find_weights(tensors, config).items()}


def find_weights(tensors: TensorFolder, config: DraftConfig) -> dict[str, str]:
    """How a checkpoint calls each trained tensor: every expected one and no other, `layers.0.` too.

    Raises:
        TensorFolderError: One is missing, beyond a drafter's, or of another shape.
    """
    named = {name.removeprefix("model.").replace("layers.0.", "midlayer."): name for name in tensors.names()}
    expected = expected_shapes(config)
    unlike = sorted((named.keys() - NOT_TRAINED) ^ expected.keys())
    if unlike:
        raise TensorFolderError(f"the checkpoint lacks, or has beyond a drafter's: {', '.join(unlike[:5])}")
    for name, shape in expected.items():
        if (found := tensors.shape(named[name])) != shape:
            raise TensorFolderError(f"shape of {name} is {found}, where {shape} is needed")
    return {name: named[name] for name in expected}


def _expect(found: object, wanted: object, what: str, folder: Path) -> None:
    if found != wanted:
        raise JobRefusedError("InitDiffers", f"{folder}: {what} is {found}, where {wanted} is needed")
