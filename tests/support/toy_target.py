"""A target that says a sequence again, whatever it was: what it says next cannot be told from one layer and
the tokens alone, so a drafter must make use of its states.

A row is a random sequence of distinct tokens, its first two again, and from there what the target says. It
was trained once, by `python -m tests.support.toy_target`, which takes minutes and writes the folder anew.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

from draftmill_api.record import RecordStatus
from draftmill_api.store import ComputedIn, RowFacts, StoreBinding
from draftmill_api.v1alpha1.extractrun import StateDtype
from draftmill_jobs.model.fingerprint import fingerprint
from draftmill_jobs.store import StoreRow, StoreWriter
from draftmill_jobs.train.data import RowInfo, TrainRow
from draftmill_jobs.train.starting import StoreShape
from tests.support.states import ALONE, RUN

FOLDER: Final = Path(__file__).resolve().parents[1] / "data" / "toy-target"
VOCABULARY, HIDDEN, LAYERS = 64, 64, 4
LAYER_IDS = (1, 2, 3)
SHAPE = StoreShape(layer_ids=LAYER_IDS, hidden_size=HIDDEN, layers=LAYERS)
PERIODS = (9, 11, 13, 15, 17, 19)
_FIRST_TOKEN = 4  # ids below are kept for tokens that begin and end something
_REPEATS = 3
_RATE = 2e-3  # the highest


@dataclass(frozen=True)
class ToyRows:
    """Rows with the target's own greedy answers and states: a `RowSource`.

    Attributes:
        ids: int32[T] of each.
        states: `[T, states + 1, H]` of each, float32.
        prompts: Tokens of each prompt.
    """

    ids: tuple[NDArray[np.int32], ...]
    states: tuple[Tensor, ...]
    prompts: tuple[int, ...]

    @property
    def rows(self) -> Sequence[RowInfo]:
        return [
            RowInfo(f"toy/{i}", f"prompt {i}", len(ids), greedy=True, hash=ids.tobytes().hex())
            for i, ids in enumerate(self.ids)
        ]

    def answer(self, row: int) -> NDArray[np.int32]:
        return self.ids[row][self.prompts[row] :]

    def read(self, row: int) -> TrainRow:
        ids = self.ids[row]
        return TrainRow(ids, np.arange(len(ids)) >= self.prompts[row], self.states[row])

    def permuted(self) -> ToyRows:
        """Each row with the states of another one that is as long."""
        others = [self._other(row) for row in range(len(self.ids))]
        return ToyRows(self.ids, tuple(self.states[i] for i in others), self.prompts)

    def with_states(self, states: Sequence[Tensor]) -> ToyRows:
        """The same tokens with other states."""
        return ToyRows(self.ids, tuple(states), self.prompts)

    def _other(self, row: int) -> int:
        alike = [i for i, ids in enumerate(self.ids) if len(ids) == len(self.ids[row])]
        return alike[(alike.index(row) + 1) % len(alike)]


@cache
def toy_model() -> Any:
    """The target, in float32."""
    model: Any = LlamaForCausalLM.from_pretrained(FOLDER, dtype=torch.float32)
    return model.eval()


@cache
def toy_rows(
    count: int, *, seed: int = 0, layer_ids: tuple[int, ...] = LAYER_IDS, answer: int | None = None
) -> ToyRows:
    """So many rows, of lengths that differ.

    Args:
        count: How many.
        seed: Of their prompts.
        layer_ids: Of the states, entering a layer; the last layer's output is added.
        answer: Tokens of each answer; up to the end of the third repetition when None.
    """
    made = torch.Generator().manual_seed(seed)
    ids: list[NDArray[np.int32]] = []
    states: list[Tensor] = []
    prompts: list[int] = []
    for number, period in enumerate(PERIODS):
        rows = len(range(number, count, len(PERIODS)))
        if not rows:
            continue
        length = period + 2 + answer if answer is not None else _REPEATS * period
        said, seen = _answered(_sequences(rows, period, made), length, layer_ids)
        ids += [row.numpy().astype(np.int32) for row in said]
        states += list(seen)
        prompts += [period + 2] * rows
    return ToyRows(tuple(ids), tuple(states), tuple(prompts))


def write_toy_store(folder: Path, rows: ToyRows, mask_from: Sequence[int] | None = None) -> Path:
    """A store of these rows, bound to the toy target; the loss mask is that of the answers unless told."""
    with StoreWriter(folder, toy_binding(), shard_bytes=1 << 24, run=RUN, share=ALONE) as writer:
        for number in range(len(rows.ids)):
            first = rows.prompts[number] if mask_from is None else mask_from[number]
            writer.append(_store_row(rows, number, first), lambda: None)
        writer.seal()
    return folder


def toy_binding() -> StoreBinding:
    """What the toy's stores are bound to."""
    return StoreBinding(
        model_fingerprint=fingerprint(FOLDER),
        layer_ids=[*LAYER_IDS, LAYERS],
        hidden_size=HIDDEN,
        dtype=StateDtype.FLOAT32,
    )


def repetition_accuracy(model: Any, rows: int = 96, seed: int = 7) -> float:
    """How often the likeliest token is the sequence's own, from the third token of the second half on."""
    made = torch.Generator().manual_seed(seed)
    right, asked = 0, 0
    for period in PERIODS:
        whole = _sequences(rows // len(PERIODS), period, made).repeat(1, _REPEATS)
        with torch.no_grad():
            said = model(whole).logits[:, period + 1 : -1].argmax(-1)
        right += int((said == whole[:, period + 2 :]).sum())
        asked += said.numel()
    return right / asked


def _store_row(rows: ToyRows, number: int, mask_from: int) -> StoreRow:
    row = rows.read(number)
    facts = RowFacts(
        dataset="toy",
        id=f"{number:032x}",
        prompt_key=f"{number:032x}",
        turn=0,
        prompt_tokens=rows.prompts[number],
        status=RecordStatus.OK,
        temperature=0.0,
    )
    mask = (np.arange(len(row.token_ids)) >= mask_from).astype(np.uint8)
    return StoreRow(facts, row.token_ids, mask, row.states.numpy(), row.token_ids, ComputedIn.FLOAT32)


def _sequences(rows: int, period: int, made: torch.Generator) -> Tensor:
    """int64[rows, period]: distinct tokens in each."""
    chosen = torch.rand(rows, VOCABULARY - _FIRST_TOKEN, generator=made).argsort(-1)[:, :period]
    return chosen + _FIRST_TOKEN


@torch.no_grad()
def _answered(first: Tensor, length: int, layer_ids: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Greedy answers to `first` and its beginning, `[B, T]`, and the states `[B, T, states + 1, H]`."""
    model, ids = toy_model(), torch.cat([first, first[:, :2]], 1)
    while ids.shape[1] < length:
        ids = torch.cat([ids, model(ids).logits[:, -1:].argmax(-1)], 1)
    last: list[Tensor] = []
    hook = model.model.norm.register_forward_pre_hook(lambda _, inputs: last.append(inputs[0]))
    hidden = model(ids, output_hidden_states=True).hidden_states
    hook.remove()
    return ids, torch.stack([*(hidden[layer] for layer in layer_ids), last[0]], 2)


def make(folder: Path, steps: int) -> float:
    """Trains the target until it repeats, and writes its folder; how often it is right.

    One thread and one order of sums: the same weights every time.
    """
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=256,
        tie_word_embeddings=False,
        bos_token_id=1,
        eos_token_id=2,
    )
    model: Any = LlamaForCausalLM(config)
    optimiser = torch.optim.AdamW(model.parameters(), lr=_RATE, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, _RATE, total_steps=steps, pct_start=0.1)
    made = torch.Generator().manual_seed(1)
    for step in range(steps):
        period = PERIODS[step % len(PERIODS)]
        ids = _sequences(32, period, made).repeat(1, _REPEATS + step % 4)
        logits = model(ids).logits[:, period + 1 : -1]
        loss = functional.cross_entropy(logits.flatten(0, 1), ids[:, period + 2 :].flatten())
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        if step % 200 == 199:
            print(step + 1, round(loss.item(), 4), flush=True)
    model = model.to(torch.bfloat16)
    model.save_pretrained(folder)
    return repetition_accuracy(model.float())


if __name__ == "__main__":
    print("accuracy", make(FOLDER, int(sys.argv[1]) if len(sys.argv) > 1 else 1200))
