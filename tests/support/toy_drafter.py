"""A drafter of the toy target, trained once in a session, and its store: what the doctor examines."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from draftmill_api.v1alpha1.draftertrain import Scratch
from draftmill_jobs.train.folders import DRAFTER
from draftmill_jobs.train.settings import TrainConfig, Training
from draftmill_jobs.train.training import train
from draftmill_jobs.train.world import joined
from tests.support.toy_target import FOLDER, LAYER_IDS, SHAPE, toy_rows

DRAFT_TOKENS = 4
DRAFT_VOCABULARY = 60  # what the toy ever says
_ROWS = 480


def toy_config(output: Path, *, tokens: int = DRAFT_VOCABULARY, **training: Any) -> TrainConfig:
    """As short as it can be, on one thread: with tensors as small as these a second one is waited for.

    Args:
        output: Its folder.
        tokens: That the drafter can say.
        training: Settings.
    """
    torch.set_num_threads(1)
    settings = {
        "epochs": 12,
        "learning_rate": 3e-3,
        "warmup_steps": 20,
        "ttt_length": DRAFT_TOKENS,
        "tokens_per_batch": 1024,
        "precision": "Float32",
        "held_out_percent": 10,
        "save_every_steps": 10_000,
        **training,
    }
    return TrainConfig(
        target=str(FOLDER),
        output=str(output),
        scratch=Scratch(draft_vocab_size=tokens),
        training=Training.model_validate(settings),
    )


def train_toy_drafter(
    output: Path,
    *,
    tokens: int = DRAFT_VOCABULARY,
    layer_ids: tuple[int, ...] = LAYER_IDS,
    **training: Any,
) -> ToyDrafter:
    """Trains it, as `toy_config` says but for what is given.

    Args:
        output: Its folder.
        tokens: That the drafter can say.
        layer_ids: Of the states that it is trained on, entering a layer.
        training: Settings.
    """
    config = toy_config(output, tokens=tokens, **training)
    told = config.export.model_copy(update={"sglang": [9, 10, 11]})  # it takes no embeddings, id 0
    with joined(0) as world:
        train(
            config.model_copy(update={"export": told}),
            toy_rows(_ROWS, layer_ids=layer_ids),
            replace(SHAPE, layer_ids=layer_ids),
            world,
            should_stop=lambda: False,
            begun=lambda _: None,
            report=lambda _: None,
        )
    return ToyDrafter(output / DRAFTER / "vllm")


@dataclass(frozen=True)
class ToyDrafter:
    """Its folder for vLLM, whose copies a test breaks."""

    folder: Path

    def copy(self, folder: Path) -> ToyDrafter:
        """Another one."""
        shutil.copytree(self.folder, folder)
        return ToyDrafter(folder)

    def set_config(self, **changes: Any) -> None:
        """Writes other values into its config."""
        path = self.folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    def set_tensors(self, **changes: torch.Tensor) -> None:
        """Writes other tensors into its weights."""
        path = self.folder / "model.safetensors"
        save_file({**load_file(path), **changes}, path)
