"""A trained drafter as folders that engines load, re-opened and checked after writing."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import save_file
from torch import Tensor

from draftmill_jobs.errors import JobFailedError
from draftmill_jobs.shared.files import sync_folder
from draftmill_jobs.train.draft_config import FLAT_ARCHITECTURE, DraftConfig, DraftConfigError
from draftmill_jobs.train.layers import DraftEngine
from draftmill_jobs.train.starting import find_weights, read_draft_config
from draftmill_jobs.train.tensors import TensorFolder, TensorFolderError
from draftmill_jobs.train.vocabulary import DraftVocabulary

_WEIGHTS: Final = "model.safetensors"
_CONFIG: Final = "config.json"
_DTYPE: Final = torch.bfloat16


@dataclass(frozen=True, eq=False)
class Trained:
    """What is exported.

    Attributes:
        weights: The trained tensors.
        layer_ids: The numbers to write for each engine.
    """

    config: DraftConfig
    vocabulary: DraftVocabulary
    weights: Mapping[str, Tensor]
    layer_ids: Mapping[DraftEngine, Sequence[int]]


@dataclass(frozen=True)
class Verifier:
    """What the format of speculators says of the target.

    Attributes:
        draft_tokens: That a server drafts in a cycle unless told otherwise.
    """

    name_or_path: str
    architectures: tuple[str, ...]
    draft_tokens: int


def export_flat(trained: Trained, folder: Path) -> dict[DraftEngine, Path]:
    """Writes the flat format: one folder when one config fits both engines, else one for each.

    The weights of two folders are one file, linked twice. What stood there before is replaced.

    Returns:
        The folder for each engine.

    Raises:
        JobFailedError: What was written is not what was meant.
    """
    folders = engine_folders(trained.layer_ids, folder)
    made = folder.with_name(f".{folder.name}.unfinished")
    shutil.rmtree(made, ignore_errors=True)
    written: Path | None = None
    for engine in DraftEngine:
        inner = made / folders[engine].relative_to(folder)
        if (inner / _CONFIG).exists():
            continue
        inner.mkdir(parents=True)
        if written is None:
            written = _save(_flat_tensors(trained), inner)
        else:
            os.link(written, inner / _WEIGHTS)
        _write_config(inner, flat_config(trained.config, trained.layer_ids[engine]))
        verify(inner, trained, trained.layer_ids[engine])
    _replace(made, folder)
    return folders


def export_speculators(trained: Trained, verifier: Verifier, embeddings: Tensor, folder: Path) -> None:
    """Writes the format of speculators, which vLLM serves without naming a target; it carries the embeddings.

    Raises:
        JobFailedError: What was written is not what was meant.
    """
    made = folder.with_name(f".{folder.name}.unfinished")
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    flat = _flat_tensors(trained)
    tensors = {name.replace("midlayer.", "layers.0."): tensor for name, tensor in flat.items()}
    tensors["embed_tokens.weight"] = embeddings.to(_DTYPE).contiguous()
    _save(tensors, made)
    layer_ids = trained.layer_ids[DraftEngine.VLLM]
    _write_config(made, speculators_config(trained.config, layer_ids, verifier))
    _verify(made, trained.config, layer_ids, tensors)
    _replace(made, folder)


def _save(tensors: dict[str, Tensor], folder: Path) -> Path:
    """The weights as a file; servers, which are other users, may read it."""
    weights = folder / _WEIGHTS
    save_file(tensors, weights, metadata={"format": "pt"})
    weights.chmod(0o644)
    return weights


def flat_config(config: DraftConfig, layer_ids: Sequence[int]) -> dict[str, Any]:
    """config.json of the flat format; the ids are always written, for engines have other defaults."""
    written = {
        "architectures": [FLAT_ARCHITECTURE],
        **_layer_config(config),
        "draft_vocab_size": config.draft_vocab_size,
        "eagle_config": {
            "eagle_aux_hidden_state_layer_ids": list(layer_ids),
            "use_aux_hidden_state": True,
        },
    }
    if config.target_hidden_size != config.hidden_size:
        written["target_hidden_size"] = config.target_hidden_size
    if config.states != 3:
        written["num_aux_hidden_states"] = config.states
    options = {key: True for key in ("fc_norm", "norm_before_fc", "norm_output") if getattr(config, key)}
    return {**written, **options}


def speculators_config(config: DraftConfig, layer_ids: Sequence[int], verifier: Verifier) -> dict[str, Any]:
    """config.json of the format of speculators; ids are "entering layer" there.

    It has no `model_type`: by that vLLM knows it, and nobody has a model of the type that speculators names.
    """
    proposal = {"proposal_type": "greedy", "speculative_tokens": verifier.draft_tokens}
    return {
        "architectures": ["Eagle3DraftModel"],
        "speculators_model_type": "eagle3",
        "transformer_layer_config": _layer_config(config),
        "draft_vocab_size": config.draft_vocab_size,
        "target_hidden_size": config.target_hidden_size,
        "eagle_aux_hidden_state_layer_ids": list(layer_ids),
        "norm_before_residual": False,
        "norm_before_fc": config.norm_before_fc,
        "fc_norm": config.fc_norm,
        "norm_output": config.norm_output,
        "speculators_config": {
            "algorithm": "eagle3",
            "proposal_methods": [proposal],
            "default_proposal_method": "greedy",
            "verifier": {
                "name_or_path": verifier.name_or_path,
                "architectures": list(verifier.architectures),
            },
        },
        "torch_dtype": "bfloat16",
    }


def engine_folders(layer_ids: Mapping[DraftEngine, Sequence[int]], folder: Path) -> dict[DraftEngine, Path]:
    """Where each engine's drafter is: in one folder when all are told the same ids, else in one for each."""
    one_fits = len({tuple(ids) for ids in layer_ids.values()}) == 1
    return {engine: folder if one_fits else folder / engine.value for engine in DraftEngine}


def verify(folder: Path, trained: Trained, layer_ids: Sequence[int]) -> None:
    """Re-opens a folder in the flat format and compares config and every tensor with what was meant.

    Args:
        folder: Of one engine.
        trained: What was meant.
        layer_ids: Those that the folder's config should have.

    Raises:
        JobFailedError: Something differs; the message says what.
    """
    _verify(folder, trained.config, layer_ids, _flat_tensors(trained))


def _verify(folder: Path, config: DraftConfig, layer_ids: Sequence[int], meant: Mapping[str, Tensor]) -> None:
    try:
        written, tensors = read_draft_config(folder), TensorFolder(folder)
        find_weights(tensors, config)
    except (DraftConfigError, TensorFolderError) as error:
        raise JobFailedError("ExportDiffers", f"{folder}: {error}") from error
    if written.config != config or written.layer_ids != tuple(layer_ids):
        raise _differs(folder, "the config")
    if unlike := sorted(meant.keys() ^ set(tensors.names())):
        raise _differs(folder, ", ".join(unlike))
    for name, tensor in meant.items():
        found = tensors.read(name)
        if found.dtype is not tensor.dtype or not torch.equal(found, tensor):
            raise _differs(folder, name)
        if not torch.isfinite(found).all():
            raise _differs(folder, f"{name}, with NaN or infinite values,")


def _layer_config(config: DraftConfig) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "num_hidden_layers": 1,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "vocab_size": config.vocab_size,
        "rms_norm_eps": config.rms_norm_eps,
        "max_position_embeddings": config.max_position_embeddings,
        **config.rope.to_config(),
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "bos_token_id": config.bos_token_id,
        "eos_token_id": config.eos_token_id,
    }


def _flat_tensors(trained: Trained) -> dict[str, Tensor]:
    """With the map, unless every token can be said: vLLM has no place for it then, and refuses the folder."""
    weights = {
        name: tensor.detach().to("cpu", _DTYPE).contiguous() for name, tensor in trained.weights.items()
    }
    vocabulary = trained.vocabulary
    if len(vocabulary) == vocabulary.size_of_target:
        return weights
    return {**weights, "d2t": torch.from_numpy(vocabulary.d2t), "t2d": torch.from_numpy(vocabulary.t2d)}


def _write_config(folder: Path, config: Mapping[str, Any]) -> None:
    (folder / _CONFIG).write_text(json.dumps(config, indent=2) + "\n")


def _replace(made: Path, folder: Path) -> None:
    for path in [*made.rglob("*"), made]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    if folder.exists():
        shutil.rmtree(folder)
    made.rename(folder)
    sync_folder(folder.parent)


def _differs(folder: Path, what: str) -> JobFailedError:
    return JobFailedError(
        "ExportDiffers", f"{folder}: {what} is not what was trained; the disk may be broken"
    )
