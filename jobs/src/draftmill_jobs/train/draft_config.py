"""What a drafter's config.json says, read from the flat format and from that of speculators.

Whatever would make the drafter another function than the one trained here is refused by name, for a server
ignores a key that it does not know, and so would a reader.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from draftmill_api.v1alpha1.draftertrain import WrittenLayerIds
from draftmill_jobs.train.rope import Rope

FLAT_ARCHITECTURE: Final = "LlamaForCausalLMEagle3"
_FLAT: Final = frozenset({FLAT_ARCHITECTURE, "Eagle3LlamaForCausalLM"})


class DraftConfigError(ValueError):
    """A config.json that is not a drafter's, or a drafter's of another kind than ours."""


@dataclass(frozen=True, kw_only=True)
class DraftConfig:
    """The shape of a drafter: one Llama layer, and a head over the draft vocabulary.

    Attributes:
        vocab_size: V, ids of the target.
        draft_vocab_size: DV, ids that the drafter can say.
        target_hidden_size: Width of one of the target's states.
        states: How many of them enter `fc`.
        fc_norm: Each state is normed by itself before `fc`.
        norm_before_fc: All states are normed together before `fc`.
        norm_output: What is fed back between steps is normed (vLLM's and speculators' meaning of the key).
    """

    hidden_size: int
    intermediate_size: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab_size: int
    draft_vocab_size: int
    target_hidden_size: int
    rms_norm_eps: float
    max_position_embeddings: int
    rope: Rope
    states: int = 3
    fc_norm: bool = False
    norm_before_fc: bool = False
    norm_output: bool = False
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None

    def __post_init__(self) -> None:
        if self.fc_norm and self.norm_before_fc:
            raise DraftConfigError("fc_norm and norm_before_fc exclude each other")
        if self.heads % self.kv_heads:
            raise DraftConfigError(f"{self.heads} heads cannot share {self.kv_heads} keys and values")
        if not 0 < self.draft_vocab_size <= self.vocab_size:
            raise DraftConfigError(
                f"draft_vocab_size {self.draft_vocab_size} is above vocab_size {self.vocab_size}"
            )


@dataclass(frozen=True)
class WrittenConfig:
    """A config.json, understood.

    Attributes:
        layer_ids: As they are written; None when the config leaves the choice to the engine.
        layer_meaning: What the format says that they mean; None when it leaves that open.
    """

    config: DraftConfig
    layer_ids: tuple[int, ...] | None
    layer_meaning: WrittenLayerIds | None


def read_config(config: object) -> WrittenConfig:
    """Understands a drafter's config.json.

    Raises:
        DraftConfigError: It lacks something, or says something that this trainer does not do.
    """
    if not isinstance(config, Mapping) or not isinstance(config.get("architectures") or [], list):
        raise DraftConfigError("the drafter's config.json is no object with a list of architectures")
    _refuse_other_drafters(config)
    if config.get("speculators_model_type") is not None:
        return _speculators(config)
    if not _FLAT.intersection(config.get("architectures") or ()):
        raise DraftConfigError(f"architectures {config.get('architectures')} are no EAGLE-3 drafter's")
    eagle = _part(config, "eagle_config")
    if eagle.get("use_aux_hidden_state", True) is not True:
        raise DraftConfigError(
            "eagle_config.use_aux_hidden_state is false: such a drafter sees one state only"
        )
    ids = eagle.get("eagle_aux_hidden_state_layer_ids") or config.get("eagle_aux_hidden_state_layer_ids")
    if config.get("norm_before_residual"):
        raise DraftConfigError(_norm_before_residual("is true"))
    options = {**config, "norm_before_fc": eagle.get("norm_before_fc", config.get("norm_before_fc", False))}
    return _written(config, options, _layer_ids(ids), None)


def _speculators(config: Mapping[str, Any]) -> WrittenConfig:
    if config["speculators_model_type"] != "eagle3":
        raise DraftConfigError(f"speculators_model_type {config['speculators_model_type']!r} is not eagle3")
    if config.get("norm_before_residual", True):
        raise DraftConfigError(
            _norm_before_residual(
                "is true" if "norm_before_residual" in config else "is missing, which means true"
            )
        )
    layer = _part(config, "transformer_layer_config")
    _refuse_other_drafters(layer)
    ids = _layer_ids(config.get("eagle_aux_hidden_state_layer_ids"))
    return _written(layer, config, ids, WrittenLayerIds.ENTERING_LAYER)


def _part(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = config.get(name) or {}
    if not isinstance(found, Mapping):
        raise DraftConfigError(f"{name} in the drafter's config.json is no object")
    return found


def _layer_ids(found: object) -> tuple[int, ...] | None:
    if not found:
        return None
    if not isinstance(found, list) or not all(isinstance(each, int) for each in found):
        raise DraftConfigError(f"layer ids {found!r} in the drafter's config.json are no list of numbers")
    return tuple(found)


def _written(
    layer: Mapping[str, Any],
    options: Mapping[str, Any],
    ids: tuple[int, ...] | None,
    meaning: WrittenLayerIds | None,
) -> WrittenConfig:
    try:
        config = _draft_config(layer, options, len(ids or ()))
    except DraftConfigError:
        raise
    except KeyError as error:
        raise DraftConfigError(f"the drafter's config.json does not name {error}") from error
    except (ArithmeticError, TypeError, ValueError) as error:
        raise DraftConfigError(f"the drafter's config.json: {error}") from error
    return WrittenConfig(config, ids, meaning)


def _draft_config(layer: Mapping[str, Any], options: Mapping[str, Any], ids: int) -> DraftConfig:
    hidden, heads = int(layer["hidden_size"]), int(layer["num_attention_heads"])
    return DraftConfig(
        hidden_size=hidden,
        intermediate_size=int(layer["intermediate_size"]),
        heads=heads,
        kv_heads=int(layer.get("num_key_value_heads") or heads),
        head_dim=int(layer.get("head_dim") or hidden // heads),
        vocab_size=int(layer["vocab_size"]),
        draft_vocab_size=int(options.get("draft_vocab_size") or layer["vocab_size"]),
        target_hidden_size=int(options.get("target_hidden_size") or hidden),
        rms_norm_eps=float(layer["rms_norm_eps"]),
        max_position_embeddings=int(layer["max_position_embeddings"]),
        rope=Rope.from_config(layer),
        states=int(options.get("num_aux_hidden_states") or ids or 3),
        fc_norm=bool(options.get("fc_norm")),
        norm_before_fc=bool(options.get("norm_before_fc")),
        norm_output=bool(options.get("norm_output")),
        bos_token_id=layer.get("bos_token_id"),
        eos_token_id=layer.get("eos_token_id"),
    )


def _refuse_other_drafters(config: Mapping[str, Any]) -> None:
    architectures = " ".join(config.get("architectures") or ())
    if (
        config.get("kv_lora_rank") is not None
        or "DeepseekV2" in architectures
        or "DeepseekV3" in architectures
    ):
        raise DraftConfigError(
            f"{architectures or 'the drafter'} has multi-head latent attention (MLA); only drafters with "
            f"ordinary attention ({FLAT_ARCHITECTURE}) can be trained"
        )
    unlike = {
        "num_hidden_layers": (1, None),
        "model_type": ("llama", "speculator_model", "eagle3", None),
        "hidden_act": ("silu", None),
        "attention_bias": (False, None),
        "mlp_bias": (False, None),
        "logit_scale": (1, 1.0, None),
        "partial_rotary_factor": (1, 1.0, None),
    }
    for key, allowed in unlike.items():
        if config.get(key) not in allowed:
            raise DraftConfigError(
                f"a drafter with {key} {config[key]!r} cannot be trained; it needs {allowed[0]!r}"
            )


def _norm_before_residual(how: str) -> str:
    return f"norm_before_residual {how}: SGLang would ignore it and the drafter would collapse there"
