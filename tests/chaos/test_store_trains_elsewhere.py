"""A store's export is read, and learned from, by another project's real trainer."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from draftmill_api.store import ComputedIn
from draftmill_cli.main import main
from draftmill_dev import cache, venvs
from draftmill_jobs.store import StoreRow
from tests.support.states import LAYER_IDS, bfloat16, binding, row, written
from tests.support.tiny_model import VOCABULARY, make_tiny_model

pytestmark = [pytest.mark.life, pytest.mark.timeout(3600)]

_SPECULATORS = ["speculators==0.9.0", "hs-connectors==0.9.0"]
_UNUSABLE_WITHOUT_CUDA = ["torchaudio", "torchvision"]
_WIDTH, _TOKENS, _ROWS = 64, 40, 24


def test_speculators_trains_on_an_export(tmp_path: Path) -> None:
    target = _target(tmp_path / "target")
    written(tmp_path / "store", _rows(target), binding=binding(hidden_size=_WIDTH))
    output = tmp_path / "export"
    arguments = ["store", "export", str(tmp_path / "store"), "--format", "speculators"]
    assert main([*arguments, "--output", str(output)]) == 0

    said = _train(target, output, tmp_path / "drafter")

    losses = [float(loss) for loss in re.findall(r"train/loss_0=([0-9.e+-]+)", said)]
    assert len(losses) >= 2, said[-4000:]
    assert np.isfinite(losses).all()
    assert "don't match input ids" not in said.replace("\n", " ")


def _target(folder: Path) -> Path:
    make_tiny_model(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=_WIDTH,
        intermediate_size=128,
        num_hidden_layers=LAYER_IDS[-1],
        num_attention_heads=4,
        num_key_value_heads=4,
        vocab_size=len(VOCABULARY),
        max_position_embeddings=512,
        tie_word_embeddings=False,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@torch.no_grad()
def _rows(folder: Path) -> list[StoreRow]:
    """Rows with the target's own states."""
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    last: list[torch.Tensor] = []
    model.model.norm.register_forward_pre_hook(lambda _, inputs: last.append(inputs[0]))
    rows = []
    for number in range(_ROWS):
        plain = row(number, _TOKENS)
        hidden = model(
            torch.from_numpy(plain.token_ids).long()[None], output_hidden_states=True
        ).hidden_states
        states = torch.stack([*(hidden[layer] for layer in LAYER_IDS[:-1]), last.pop()], dim=2)[0]
        rows.append(
            StoreRow(
                plain.facts,
                plain.token_ids,
                plain.loss_mask,
                bfloat16(states.numpy()),
                plain.token_ids,
                ComputedIn.BFLOAT16,
            )
        )
    return rows


def _train(target: Path, data: Path, drafter: Path) -> str:
    command = [
        *(_python(), Path(__file__).parents[1] / "support" / "speculators_on_cpu.py"),
        *("--speculator-type", "eagle3", "--verifier-name-or-path", target),
        *("--data-path", data, "--hidden-states-path", data / "hidden_states", "--on-missing", "raise"),
        *("--draft-vocab-size", "256", "--target-layer-ids", *map(str, LAYER_IDS[:-1]), "--ttt-steps", "3"),
        *("--draft-attn-impl", "sdpa", "--loss-implementation", "eager", "--num-workers", "0"),
        *("--no-resume-from-checkpoint", "--total-seq-len", "256", "--hidden-states-dtype", "bfloat16"),
        *("--optimizer", "adamw", "--epochs", "1", "--lr", "1e-3", "--save-path", drafter),
    ]
    done = subprocess.run(
        [str(part) for part in command],
        cwd=data.parent,
        env={**os.environ, "COLUMNS": "1000", "HF_HUB_OFFLINE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout


def _python() -> Path:
    """The Python of an environment with speculators, made once; torch is the one that we have already."""
    torch_version = f"torch=={torch.__version__.partition('+')[0]}"

    def make(folder: Path) -> None:
        python = folder / "venv" / "bin" / "python"
        venvs.run_uv(["venv", "--python", sys.executable, folder / "venv"], folder)
        venvs.run_uv(["pip", "install", "--python", python, *_SPECULATORS, torch_version], folder)
        venvs.run_uv(["pip", "uninstall", "--python", python, *_UNUSABLE_WITHOUT_CUDA], folder)

    built = cache.build("speculators", [*_SPECULATORS, torch_version, sys.version], make)
    return built / "venv" / "bin" / "python"
