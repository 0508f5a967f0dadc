"""Small trainings: a target's folder, rows that can be learned, processes that train and may be killed."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch._dynamo  # what the first optimiser of a process imports, for seconds
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from draftmill_api.record import RecordStatus
from draftmill_api.store import ComputedIn, RowFacts, StoreBinding
from draftmill_api.v1alpha1.extractrun import StateDtype
from draftmill_jobs.main import main
from draftmill_jobs.store import StoreRow
from draftmill_jobs.train.data import RowCorruptError, RowInfo, TrainRow
from draftmill_jobs.train.folders import CHECKPOINTS
from draftmill_jobs.train.loop import StepReport
from draftmill_jobs.train.settings import TrainConfig
from draftmill_jobs.train.starting import StoreShape
from draftmill_jobs.train.training import Outcome, train
from draftmill_jobs.train.world import joined

VOCABULARY, HIDDEN, LAYERS = 50, 16, 8
SHAPE = StoreShape(layer_ids=(2, 4, 5), hidden_size=HIDDEN, layers=LAYERS)
TRAINING = {
    "epochs": 2,
    "learningRate": 0.01,
    "warmupSteps": 2,
    "tttLength": 3,
    "tokensPerBatch": 64,
    "precision": "Float32",
    "heldOutPercent": 20,
    "saveEverySteps": 3,
    "keepCheckpoints": 2,
}


def _table(name: str, rows: int, columns: int) -> torch.Tensor:
    seed = int.from_bytes(name.encode()[:4].ljust(4, b"\0"))
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


def write_target(folder: Path, **config: Any) -> Path:
    """A target of which only what training reads is there."""
    folder.mkdir(parents=True)
    shape = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": 24,
        "num_attention_heads": 2,
        "num_hidden_layers": LAYERS,
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10_000.0,
    }
    (folder / "config.json").write_text(json.dumps({**shape, **config}))
    tensors = {
        "model.embed_tokens.weight": _table("embeddings", VOCABULARY, HIDDEN),
        "model.norm.weight": torch.ones(HIDDEN),
        "lm_head.weight": _table("head", VOCABULARY, HIDDEN),
    }
    save_file(tensors, folder / "model.safetensors")
    return folder


@dataclass(frozen=True)
class Rows:
    """Rows whose next token a state tells: a `RowSource`.

    Attributes:
        count: How many.
        step: From token to token.
        greedy: Whether they were answered at temperature 0.
        corrupt: Numbers of rows that cannot be read.
        version: Another one for states of other values.
    """

    count: int = 24
    step: int = 7
    greedy: bool = True
    corrupt: frozenset[int] = field(default_factory=frozenset)
    version: str = "first"

    @cached_property
    def rows(self) -> Sequence[RowInfo]:
        return [
            RowInfo(f"d/{i}", f"prompt {i}", 12 + (5 * i) % 21, self.greedy, f"{self.version} {i}")
            for i in range(self.count)
        ]

    def answer(self, row: int) -> NDArray[np.int32]:
        length = self.rows[row].tokens
        return self._ids(row)[:length][4:]

    def read(self, row: int) -> TrainRow:
        if row in self.corrupt:
            raise RowCorruptError(f"row {row}")
        length = self.rows[row].tokens
        ids = self._ids(row)
        mask = np.arange(length) >= 4
        tables = [_table(f"{layer}th layer", VOCABULARY, HIDDEN) for layer in (2, 4, 5)]
        entering = torch.stack([table[ids[:-1]] for table in tables], 1)
        last = 3 * _table("head", VOCABULARY, HIDDEN)[ids[1:]]
        return TrainRow(ids[:-1], mask, torch.cat([entering, last[:, None]], 1))

    def _ids(self, row: int) -> NDArray[np.int32]:
        """Those of the row, and the one after it."""
        places = np.arange(self.rows[row].tokens + 1)
        return ((3 * row + self.step * places) % (VOCABULARY - 3) + 3).astype(np.int32)


@dataclass(frozen=True)
class Case:
    """One training in a folder."""

    folder: Path
    rows: Rows = field(default_factory=Rows)
    training: dict[str, Any] = field(default_factory=dict)
    output: str = "output"
    draft_vocabulary: int = 48
    init: str | None = None

    def config(self) -> TrainConfig:
        target = self.folder / "target"
        if not target.exists():
            write_target(target)
        start = (
            {"init": {"path": self.init}}
            if self.init
            else {"scratch": {"draftVocabSize": self.draft_vocabulary}}
        )
        settings = {**TRAINING, **self.training}
        paths = {"target": str(target), "output": str(self.folder / self.output)}
        return TrainConfig.model_validate({**paths, **start, "training": settings})

    def run(
        self,
        *,
        should_stop: Callable[[], bool] = lambda: False,
        report: Callable[[StepReport], None] = lambda _: None,
        shape: StoreShape = SHAPE,
    ) -> Outcome:
        """Trains in this process, or in this one among several as the environment says."""
        config = self.config()
        with joined(0) as world:
            return train(
                config,
                self.rows,
                shape,
                world,
                should_stop=should_stop,
                begun=lambda _: None,
                report=report,
            )

    def weights(self) -> dict[str, torch.Tensor]:
        """Of the newest checkpoint."""
        folder = self.folder / self.output / CHECKPOINTS
        return load_file(folder / (folder / "latest").read_text() / "model.safetensors")


def start(
    case: Case, *, kill_at: int | None = None, rank: int = 0, ranks: int = 1, port: int = 0
) -> BaseProcess:
    """Trains in a process forked from one that has torch.

    Args:
        case: What to train.
        kill_at: The process kills itself before its n-th operation on a file of its checkpoints.
        rank: Its number.
        ranks: How many there are.
        port: On 127.0.0.1, where they meet.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.support.training"])
    process = context.Process(target=_train, args=(case, kill_at, rank, ranks, port))
    process.start()
    return process


def start_program(config: Path, *arguments: str) -> BaseProcess:
    """`draftmill train --config config`, in a process forked from one that has torch."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.support.training"])
    process = context.Process(target=_program, args=(str(config), *arguments))
    process.start()
    return process


def binding() -> StoreBinding:
    """Of a store that holds these rows."""
    return StoreBinding(
        model_fingerprint="f" * 64,
        layer_ids=[*SHAPE.layer_ids, LAYERS],
        hidden_size=HIDDEN,
        dtype=StateDtype.FLOAT32,
    )


def store_row(rows: Rows, number: int) -> StoreRow:
    """A row as an extractor writes it."""
    row, info = rows.read(number), rows.rows[number]
    facts = RowFacts(
        dataset="d",
        id=str(number),
        prompt_key=info.split_key,
        turn=0,
        prompt_tokens=4,
        status=RecordStatus.OK,
        temperature=0.0 if info.greedy else 1.0,
    )
    ids = row.token_ids
    return StoreRow(
        facts, ids, row.mask.astype(np.uint8), row.states.float().numpy(), ids, ComputedIn.FLOAT32
    )


def _train(case: Case, kill_at: int | None, rank: int, ranks: int, port: int) -> None:
    torch.set_num_threads(1)
    if ranks > 1:
        place = {"RANK": rank, "WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        os.environ.update({name: str(value) for name, value in place.items()})
    if kill_at is not None:
        _kill_myself_at(kill_at, str(case.folder / case.output / CHECKPOINTS))
    case.run()


def _program(config: str, *arguments: str) -> None:
    torch.set_num_threads(1)
    sys.exit(main(["train", "--config", config, *arguments]))


def _kill_myself_at(number: int, folder: str) -> None:
    left = number

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event in ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir") and folder in str(
            arguments[0]
        ):
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
