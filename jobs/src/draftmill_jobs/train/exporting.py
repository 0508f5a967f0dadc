"""A drafter's folder in another format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from draftmill_api.v1alpha1.draftertrain import WrittenLayerIds
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.train.draft_config import DraftConfigError, WrittenConfig
from draftmill_jobs.train.export import Trained, Verifier, export_speculators
from draftmill_jobs.train.layers import (
    DraftEngine,
    LayerIdError,
    default_layer_ids,
    entering_layer_ids,
    is_deepseek_family,
)
from draftmill_jobs.train.starting import read_draft_config, read_vocabulary, read_weights
from draftmill_jobs.train.target import TargetError, read_target, text_config
from draftmill_jobs.train.tensors import TensorFolder, TensorFolderError
from draftmill_jobs.train.vocabulary import VocabularyError

_STATES: Final = 3
"""That vLLM takes into a drafter of this format, whatever its config says."""


def export_as_speculators(
    folder: Path, target: Path, output: Path, *, target_name: str | None, draft_tokens: int
) -> None:
    """Writes the format of speculators, which carries the target's embeddings.

    Args:
        folder: Of the drafter for vLLM, whose layer ids are those of that format.
        target: Folder of the target.
        output: A new folder.
        target_name: What the drafter's config calls the target; its folder when None.
        draft_tokens: That a server drafts in a cycle unless told otherwise.

    Raises:
        JobRefusedError: It is no drafter, or not one of the target.
        JobFailedError: What was written is not what was meant.
    """
    try:
        written, tensors, model = read_draft_config(folder), TensorFolder(folder), read_target(target)
        config = written.config
        ids = _entering(written, model.config)
        trained = Trained(
            config, read_vocabulary(tensors, config), read_weights(tensors, config), {DraftEngine.VLLM: ids}
        )
    except (
        DraftConfigError,
        KeyError,
        LayerIdError,
        TargetError,
        TensorFolderError,
        VocabularyError,
    ) as error:
        raise JobRefusedError("DrafterNotUsable", f"{folder}: {error}") from error
    if config.states != _STATES:
        raise JobRefusedError(
            "DrafterNotUsable",
            f"{folder} takes {config.states} states, and vLLM reads {_STATES} into a drafter of this format: "
            "serve the folder as it is",
        )
    if model.embeddings.shape != (config.vocab_size, config.hidden_size):
        raise JobRefusedError(
            "ModelMismatch",
            f"{target} has embeddings {list(model.embeddings.shape)}, and the drafter needs "
            f"{[config.vocab_size, config.hidden_size]}",
        )
    architectures = tuple(model.config.get("architectures", ()))
    verifier = Verifier(target_name or str(target), architectures, draft_tokens)
    export_speculators(trained, verifier, model.embeddings, output)


def _entering(written: WrittenConfig, target_config: Mapping[str, Any]) -> tuple[int, ...]:
    """The ids of a drafter for vLLM.

    Raises:
        LayerIdError: They do not fit the target, or are those of the folder for SGLang.
    """
    layers, ids = int(text_config(target_config)["num_hidden_layers"]), written.layer_ids or ()
    is_deepseek = is_deepseek_family(target_config)
    if not is_deepseek and tuple(i + 1 for i in ids) == default_layer_ids(layers):
        raise LayerIdError(f"layer ids {list(ids)} count as SGLang does: name the drafter's folder for vLLM")
    return entering_layer_ids(
        ids, layers=layers, target_is_deepseek=is_deepseek, meaning=WrittenLayerIds.ENTERING_LAYER
    )
