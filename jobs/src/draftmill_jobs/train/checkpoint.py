"""Checkpoints that are whole or not there.

A checkpoint is a folder `step-<n>`: trained weights, the optimiser's moments, `state.json`. It is written
under another name, made durable, and renamed. `latest` and `best` are small files with a folder's name in
them. So a process may be killed at any instant, and the newest folder of that name can be resumed from.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pydantic import Field, ValidationError
from safetensors.torch import load_file, save_file
from torch import Tensor

from draftmill_api.base import ApiModel
from draftmill_api.drafter import DrafterAcceptance
from draftmill_jobs.shared.files import sync_folder, write_atomically

_WEIGHTS: Final = "model.safetensors"
_MOMENTS: Final = "optimiser.safetensors"
_STATE: Final = "state.json"
_NAME: Final = re.compile(r"step-([0-9]+)")
_UNFINISHED: Final = ".unfinished-"


class TrainState(ApiModel):
    """`state.json`: where a training is.

    Attributes are those of the run up to here; `identity` and `origin` say what must be the same to go on.
    """

    version: int = 1
    step: int = Field(ge=0, description="Optimiser steps done.")
    identity: str = Field(description="Hash of rows, settings and drafter that the steps depend on.")
    origin: str = Field(
        default="",
        description="Hash of the states and of the weights to start from; empty, of older checkpoints.",
    )
    tokens: int = Field(default=0, ge=0, description="Tokens trained on, over all ranks.")
    corrupt: list[int] = Field(default_factory=list, description="Rows found to be corrupt so far.")
    best: DrafterAcceptance | None = Field(default=None, description="The best evaluation so far.")
    best_step: int | None = Field(default=None, description="After which step.")
    bytes: dict[str, int] = Field(default_factory=dict, description="Size of each file beside this one.")


def checkpoint_name(step: int) -> str:
    """The folder of the checkpoint after so many steps."""
    return f"step-{step:08}"


def is_of(state: TrainState, identity: str, origin: str) -> bool:
    """Whether a checkpoint is of the training that has these."""
    return state.identity == identity and state.origin in ("", origin)


class Checkpoints:
    """The checkpoints of one training; only one process writes.

    Args:
        folder: Where they are.
        keep: How many of the newest are kept, besides the best.
    """

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder, self._keep = folder, keep

    def steps(self) -> list[int]:
        """Steps of the whole ones, ascending."""
        if not self.folder.is_dir():
            return []
        found = (_NAME.fullmatch(path.name) for path in self.folder.iterdir())
        return sorted(int(match[1]) for match in found if match and self._is_whole(int(match[1])))

    def save(self, state: TrainState, weights: Mapping[str, Tensor], moments: Mapping[str, Tensor]) -> None:
        """Writes one, durably, and takes away those that are no longer kept.

        Raises:
            OSError: The disk is full or broken; those before are untouched.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._forget_unfinished()
        unfinished = self.folder / f"{_UNFINISHED}{state.step}"
        unfinished.mkdir()
        for name, tensors in ((_WEIGHTS, weights), (_MOMENTS, moments)):
            save_file(
                {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()},
                unfinished / name,
            )
            _sync(unfinished / name)
        sizes = {path.name: path.stat().st_size for path in unfinished.iterdir()}
        whole = state.model_copy(update={"bytes": sizes})
        write_atomically(unfinished / _STATE, whole.model_dump_json(by_alias=True, indent=2).encode())
        final = self._path(state.step)
        if final.exists():  # not whole, or it would have been resumed from
            shutil.rmtree(final)
        unfinished.rename(final)
        sync_folder(self.folder)
        write_atomically(self.folder / "latest", final.name.encode())
        if state.best_step is not None:  # also if a kill came before this when that one was saved
            write_atomically(self.folder / "best", checkpoint_name(state.best_step).encode())
        self._rotate(state.best_step)

    def state(self, step: int) -> TrainState:
        """Where the training was then.

        Raises:
            ValidationError: It is of another version.
        """
        return TrainState.model_validate_json((self._path(step) / _STATE).read_bytes())

    def weights(self, step: int) -> dict[str, Tensor]:
        """The trained tensors, by name."""
        return load_file(self._path(step) / _WEIGHTS)

    def moments(self, step: int) -> dict[str, Tensor]:
        """The optimiser's tensors, by name."""
        return load_file(self._path(step) / _MOMENTS)

    def _path(self, step: int) -> Path:
        return self.folder / checkpoint_name(step)

    def _is_whole(self, step: int) -> bool:
        """A rename makes it so where file systems keep their promises; sizes are compared for the others."""
        try:
            sizes = self.state(step).bytes
            return all((self._path(step) / name).stat().st_size == size for name, size in sizes.items())
        except (OSError, ValidationError):
            return False

    def _rotate(self, best: int | None) -> None:
        for step in self.steps()[: -self._keep]:
            if step != best:
                # Renamed first: a kill half-way leaves nothing that looks like a checkpoint.
                dying = self.folder / f"{_UNFINISHED}{step}"
                self._path(step).rename(dying)
                shutil.rmtree(dying)

    def _forget_unfinished(self) -> None:
        for path in self.folder.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
