"""Layer ids: one convention inside, others where configs are read and written.

Inside and in every manifest an id is "entering layer": id i is the residual stream before layer i.
Checkpoints may also count "output of layer": the stream after layer i, so i + 1 here. Both are plain numbers
under one key, and a server that counts the other way gives a drafter the wrong states without a word.

How engines read `eagle_aux_hidden_state_layer_ids` (vLLM 0.32, SGLang 0.5.23): vLLM takes ids as entering a
layer. SGLang adds 1 for most targets; for the DeepSeek family, which Kimi and some of GLM and Mistral belong
to, only when the first id is 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from draftmill_api.v1alpha1.draftertrain import WrittenLayerIds


class LayerIdError(ValueError):
    """Layer ids that cannot be read in one way only, or that an engine would read wrongly."""


class DraftEngine(StrEnum):
    """Engines that serve drafters."""

    VLLM = "vllm"
    SGLANG = "sglang"


_DEEPSEEK_FAMILY: Final = (  # as SGLang has it; what differs from model type to architecture is there twice
    *("deepseek", "kimi", "mistrallarge3"),
    *("glm4_moe_lite", "glm4moelite", "glm_moe_dsa", "glmmoedsa"),
)


def is_deepseek_family(target_config: Mapping[str, Any]) -> bool:
    """Whether engines treat the target as DeepSeek's: by model type or architecture, the text part's too."""
    text = target_config.get("text_config") or {}
    names = [target_config.get("model_type"), text.get("model_type"), *target_config.get("architectures", [])]
    return any(str(name).lower().startswith(_DEEPSEEK_FAMILY) for name in names if name)


def default_layer_ids(layers: int) -> tuple[int, ...]:
    """The ids, entering a layer, that engines take when a config names none."""
    return (2, layers // 2, layers - 3)


def entering_layer_ids(
    written: Sequence[int], *, layers: int, target_is_deepseek: bool, meaning: WrittenLayerIds | None
) -> tuple[int, ...]:
    """Brings a checkpoint's ids to "entering layer".

    Args:
        written: As they stand in its config.
        layers: L, the target's number of layers.
        target_is_deepseek: See `is_deepseek_family`.
        meaning: What they mean, when somebody said so.

    Raises:
        LayerIdError: Nobody said so, and they can be read both ways; or they are outside the target.
    """
    ids = tuple(written)
    if meaning is None:
        meaning = _guess(ids, layers, target_is_deepseek=target_is_deepseek)
    if meaning is WrittenLayerIds.OUTPUT_OF_LAYER:
        ids = tuple(i + 1 for i in ids)
    if not ids or list(ids) != sorted(set(ids)) or ids[0] < 0 or ids[-1] > layers:
        raise LayerIdError(f"layer ids {list(written)} do not fit a target of {layers} layers")
    return ids


def layer_ids_for(engine: DraftEngine, ids: Sequence[int], *, target_is_deepseek: bool) -> list[int]:
    """The numbers to write so that an engine takes exactly the states `ids`, which are "entering layer".

    Raises:
        LayerIdError: No numbers make the engine take them.
    """
    if engine is DraftEngine.VLLM:
        return list(ids)
    if not target_is_deepseek:
        if ids[0] == 0:
            raise LayerIdError("SGLang cannot take the embeddings (layer id 0)")
        return [i - 1 for i in ids]
    if ids[0] == 1:
        raise LayerIdError("SGLang takes a first layer id 1 as 2 for this target")
    return list(ids)


def _guess(ids: tuple[int, ...], layers: int, *, target_is_deepseek: bool) -> WrittenLayerIds:
    if target_is_deepseek:
        return WrittenLayerIds.OUTPUT_OF_LAYER if ids[:1] == (1,) else WrittenLayerIds.ENTERING_LAYER
    entering = default_layer_ids(layers)
    if ids == entering:
        return WrittenLayerIds.ENTERING_LAYER
    if ids == tuple(i - 1 for i in entering):
        return WrittenLayerIds.OUTPUT_OF_LAYER
    raise LayerIdError(
        f"layer ids {list(ids)} may mean the stream before or after these layers: say which "
        f"({', '.join(WrittenLayerIds)})"
    )
