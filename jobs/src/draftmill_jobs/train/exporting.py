"""A drafter's folder in another format."""

from __future__ import annotations

from pathlib import Path

from draftmill_api.v1alpha1.draftertrain import WrittenLayerIds
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.train.draft_config import DraftConfigError
from draftmill_jobs.train.export import Trained, Verifier, export_speculators
from draftmill_jobs.train.layers import DraftEngine, LayerIdError, entering_layer_ids, is_deepseek_family
from draftmill_jobs.train.starting import read_draft_config, read_vocabulary, read_weights
from draftmill_jobs.train.target import TargetError, read_target, text_config
from draftmill_jobs.train.tensors import TensorFolder, TensorFolderError
from draftmill_jobs.train.vocabulary import VocabularyError


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
        layers = int(text_config(model.config)["num_hidden_layers"])
        ids = entering_layer_ids(
            written.layer_ids or (),
            layers=layers,
            target_is_deepseek=is_deepseek_family(model.config),
            meaning=WrittenLayerIds.ENTERING_LAYER,
        )
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
    if model.embeddings.shape != (config.vocab_size, config.hidden_size):
        raise JobRefusedError(
            "ModelMismatch",
            f"{target} has embeddings {list(model.embeddings.shape)}, and the drafter needs "
            f"{[config.vocab_size, config.hidden_size]}",
        )
    architectures = tuple(model.config.get("architectures", ()))
    verifier = Verifier(target_name or str(target), architectures, draft_tokens)
    export_speculators(trained, verifier, model.embeddings, output)
