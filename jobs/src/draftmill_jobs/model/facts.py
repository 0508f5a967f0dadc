"""What config.json says about a model."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftmill_api.jobconfig import JobModel
from draftmill_api.v1alpha1.status import ModelFacts
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.model.fingerprint import fingerprint
from draftmill_jobs.model.think import ThinkTokens, think_tokens
from draftmill_jobs.model.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class TargetModel:
    """The target model's folder, read.

    Attributes:
        stop_ids: Tokens that end an answer.
    """

    name: str
    facts: ModelFacts
    tokenizer: Tokenizer
    think: ThinkTokens
    stop_ids: frozenset[int]


def read_model(model: JobModel) -> TargetModel:
    """Reads config, tokenizer and fingerprint of a model's folder.

    Raises:
        JobRefusedError: The folder is missing or not a model that can be used.
    """
    folder = Path(model.path)
    config = _read_json(folder / "config.json")
    if config is None:
        raise JobRefusedError(
            "ModelNotFound", f"there is no model at {folder}: config.json is missing; check model.path"
        )
    tokenizer = Tokenizer.load(folder, trust_remote_code=model.trust_remote_code)
    think = think_tokens(tokenizer)
    facts = config_facts(config, fingerprint=fingerprint(folder), think_family=think.family, folder=folder)
    generation = _read_json(folder / "generation_config.json") or {}
    stop_ids = (
        _ids(config.get("eos_token_id")) | _ids(generation.get("eos_token_id")) | _ids(tokenizer.end_of_text)
    )
    return TargetModel(model.name, facts, tokenizer, think, stop_ids)


def config_facts(config: dict[str, Any], *, fingerprint: str, think_family: str, folder: Path) -> ModelFacts:
    """The facts that stand in config.json; those of a multimodal model stand in its text part.

    Raises:
        JobRefusedError: One is missing.
    """
    text = {**config, **(config.get("text_config") or {})}
    try:
        return ModelFacts(
            fingerprint=fingerprint,
            architecture=str(config["architectures"][0]),
            layers=text["num_hidden_layers"],
            hidden_size=text["hidden_size"],
            vocabulary_size=text["vocab_size"],
            context_length=text.get("max_position_embeddings"),
            think_family=think_family,
        )
    except (KeyError, IndexError, TypeError) as error:
        raise JobRefusedError("ModelNotUsable", f"{folder}/config.json does not name {error}") from error


def _read_json(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise JobRefusedError("ModelNotUsable", f"cannot read {path}: {error}") from error
    return value if isinstance(value, dict) else None


def _ids(value: Any) -> frozenset[int]:
    if value is None:
        return frozenset()
    return frozenset(value) if isinstance(value, list) else frozenset((int(value),))
