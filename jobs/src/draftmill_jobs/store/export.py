"""A store as other trainers read it.

speculators: an Arrow set (input_ids, loss_mask, seq_len), token_freq.pt, hidden_states/hs_<i>.safetensors
with hidden_states `[T, states, H]`, the last before the final norm, and token_ids `[T]`.

SpecForge: rows_<a>-<b>/data_<i>.ckpt with input_ids `[T]`, loss_mask `[T]`, aux_hidden_state `[1, T, 3H]` and
hidden_state `[1, T, H]`, which is the last state after the final norm.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import torch
from datasets import Dataset
from safetensors.torch import save_file

from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.extract.teacher import load_head
from draftmill_jobs.model.fingerprint import fingerprint
from draftmill_jobs.store.reader import Row, Store

FinalNorm: TypeAlias = Callable[[torch.Tensor], torch.Tensor]
"""The target's final norm: `[T, H]` to `[T, H]`."""

_FILES_IN_A_FOLDER: Final = 2000


def export_to_speculators(store: Store, folder: Path) -> None:
    """Writes every row as speculators' offline training reads it, in the store's dtype (Float8 as bfloat16).

    Args:
        store: The store.
        folder: An empty folder; made when it is not there.
    """
    states_folder = folder / "hidden_states"
    states_folder.mkdir(parents=True)
    frequencies: Counter[int] = Counter()
    for index, row in enumerate(store):
        frequencies.update(row.token_ids[row.loss_mask.astype(bool)].tolist())
        tensors = {"hidden_states": _states(row), "token_ids": torch.from_numpy(row.token_ids).long()}
        save_file(tensors, states_folder / f"hs_{index}.safetensors")
    rows = Dataset(_arrow_table(store))
    rows.set_format("torch")
    rows.save_to_disk(folder)
    torch.save(dict(frequencies), folder / "token_freq.pt")


def export_to_specforge(store: Store, folder: Path, final_norm: FinalNorm) -> None:
    """Writes every row as SpecForge's offline training reads it, in the store's dtype (Float8 as bfloat16).

    Args:
        store: The store.
        folder: An empty folder; made when it is not there.
        final_norm: Of the target.
    """
    for index, row in enumerate(store):
        states = _states(row)
        first = index // _FILES_IN_A_FOLDER * _FILES_IN_A_FOLDER
        group = folder / f"rows_{first}-{first + _FILES_IN_A_FOLDER}"
        group.mkdir(parents=True, exist_ok=True)
        torch.save(
            {
                "input_ids": torch.from_numpy(row.token_ids).long(),
                "loss_mask": torch.from_numpy(row.loss_mask).long(),
                "hidden_state": final_norm(states[:, -1])[None],  # [1, T, H]
                "aux_hidden_state": states[:, :-1].flatten(1)[None],  # [1, T, aux x H]
            },
            group / f"data_{index}.ckpt",
        )


def final_norm_of(store: Store, model: Path) -> FinalNorm:
    """The final norm of the target that a store's states are of, computed in float32.

    Args:
        store: A complete store.
        model: The target's folder.

    Raises:
        JobRefusedError: The store is not complete, or the folder holds another model.
    """
    manifest = store.manifest
    if manifest is None:
        raise JobRefusedError(
            "StoreIncomplete",
            f"{store.folder} has no manifest.json: its run is not done; `draftmill finish` completes it",
        )
    if (found := fingerprint(model)) != store.binding.model_fingerprint:
        raise JobRefusedError(
            "ModelMismatch",
            f"the states are of a model with fingerprint {store.binding.model_fingerprint}; that of "
            f"{model} is {found}; give their model as --model",
        )
    normalise = load_head(model, manifest.model).normalise

    def final_norm(last: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(normalise(last.float().numpy())).to(last.dtype)

    return final_norm


def _states(row: Row) -> torch.Tensor:
    """`[T, states, H]` in a dtype that other trainers read."""
    if row.line.float8_error is None:
        return row.states()
    return torch.from_numpy(row.values()).bfloat16()


def _arrow_table(store: Store) -> pa.Table:
    lengths = [line.tokens for line in store.lines]
    ends = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    columns = {
        name: pa.ListArray.from_arrays(ends, pa.array(np.concatenate(parts).astype(np.int64)))
        for name, parts in (
            ("input_ids", [row.token_ids for row in store]),
            ("loss_mask", [row.loss_mask for row in store]),
        )
    }
    return pa.table({**columns, "seq_len": pa.array(lengths, pa.int64())})
