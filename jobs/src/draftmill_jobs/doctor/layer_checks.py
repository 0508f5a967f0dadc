"""Of which layers the stored states are, and which ones the drafter was trained on: neighbours are tried.

Layer ids that are one off are the silent failure of drafters: nothing but the states themselves shows them.
So the target computes some rows again, all of its layers.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from draftmill_api.jobconfig import JobModel
from draftmill_jobs.doctor.drafter_checks import MUCH_BETTER, share_of_first_tokens
from draftmill_jobs.doctor.evidence import Patient
from draftmill_jobs.doctor.verdict import Finding, NotLookedAtError, Outcome
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.train.data import TrainRow

_ROWS, _TOKENS = 8, 256  # that the target computes again
_FITS: Final = 0.2  # relative error up to which states are those of a layer
_MEMORY_SHARE: Final = 0.5  # of what is free, for loading the target


@dataclass(frozen=True, eq=False)
class _Again:
    """Some rows whose answers begin early, as the target computes them.

    Attributes:
        rows: As they are stored, cut, by their numbers.
        streams: `[T, L + 1, H]` of each: what enters each layer, and what leaves the last.
    """

    rows: dict[int, TrainRow]
    streams: dict[int, Tensor]

    def of_layers(self, ids: Sequence[int]) -> dict[int, TrainRow]:
        """The rows with the states of these layers, and the last."""
        return {
            number: TrainRow(row.token_ids, row.mask, self.streams[number][:, [*ids, -1]])
            for number, row in self.rows.items()
        }


def check_layers(patient: Patient) -> Finding:
    """Which layers the stored states are really of."""
    labels = [*patient.shape.layer_ids, patient.shape.layers]
    again = _compute_again(patient)
    stored = torch.cat([row.states.float() for row in again.rows.values()])  # [T, labels, H]
    streams = torch.cat(list(again.streams.values())).unbind(1)
    errors = np.array([[_error(stored[:, at], stream) for stream in streams] for at in range(len(labels))])
    wrong = [sentence for label, row in zip(labels, errors, strict=True) if (sentence := _misfit(label, row))]
    if wrong:
        return Finding(Outcome.WRONG, "; ".join(wrong))
    worst = max(row[label] for label, row in zip(labels, errors, strict=True))
    return Finding(Outcome.FINE, f"{labels} are what the target computes, to {worst:.1g}")


def check_known_layers(patient: Patient) -> Finding:
    """Whether the drafter drafts better from the layers next to those that it is said to know."""
    ids, again = patient.shape.layer_ids, _compute_again(patient)
    shifted = [tuple(each + shift for each in ids) for shift in (-1, 1)]
    tried = [each for each in shifted if each[0] >= 0 and each[-1] < patient.shape.layers]
    shares = {each: share_of_first_tokens(patient, again.of_layers(each)) for each in (ids, *tried)}
    best = max(shares, key=lambda each: shares[each])
    found = f"{shares[ids]:.1%} of first tokens are right from layers {list(ids)}"
    if shares[best] > shares[ids] + MUCH_BETTER:
        return Finding(
            Outcome.WRONG,
            f"{found}, and {shares[best]:.1%} from {list(best)}: its layer ids are not those of its training",
        )
    others = (f"{shares[each]:.1%} from {list(each)}" for each in tried)
    return Finding(Outcome.FINE, "; ".join((found, *others)))


def _misfit(label: int, errors: NDArray[np.float64]) -> str:
    """What is wrong with the states that are stored as a layer's; nothing when they are.

    Args:
        label: The layer's id.
        errors: float64[L + 1], how far they are from each layer's.
    """
    best = int(errors.argmin())
    if errors[best] >= _FITS:
        return (
            f"those stored as {label} fit no layer: the nearest, {best}, has an error of {errors[best]:.2g}"
        )
    if best != label:
        found, meant = errors[best], errors[label]
        return f"those stored as {label} fit {best}: error {found:.2g}, and {meant:.2g} to {label}"
    return ""


@lru_cache(maxsize=1)
def _compute_again(patient: Patient) -> _Again:
    """More than one check asks."""
    if patient.target is None:
        raise NotLookedAtError("it needs the target's folder: give --target")
    _check_memory(patient.target)
    from draftmill_jobs.extract.transformers_model import load_model  # noqa: PLC0415 - heavy

    early = sorted(patient.rows, key=lambda number: int(patient.rows[number].mask.argmax()))
    rows = {number: _cut(patient.rows[number]) for number in early[:_ROWS]}
    layers = patient.shape.layers
    try:
        model = load_model(
            JobModel(name="target", path=str(patient.target.absolute())),
            layers=layers,
            layer_ids=range(layers + 1),
            gpus=0,
        )
    except JobRefusedError as error:
        raise NotLookedAtError(error.message) from error
    streams = {
        number: torch.from_numpy(states)
        for number, row in rows.items()
        for states in model.states([row.token_ids])
    }
    return _Again(rows, streams)


def _cut(row: TrainRow) -> TrainRow:
    return TrainRow(row.token_ids[:_TOKENS], row.mask[:_TOKENS], row.states[:_TOKENS])


def _check_memory(target: Path) -> None:
    needed = 2 * sum(path.stat().st_size for path in target.glob("*.safetensors"))  # 16 bits become 32
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > _MEMORY_SHARE * free:
        raise NotLookedAtError(
            f"the target needs {needed / 1e9:.0f} GB to compute rows again, and {free / 1e9:.0f} GB are free"
        )


def _error(found: Tensor, meant: Tensor) -> float:
    """Relative L2 error, the median over tokens: a few tokens have states far larger than all others."""
    return float(((found - meant).norm(dim=-1) / meant.norm(dim=-1).clamp_min(1e-12)).median())
