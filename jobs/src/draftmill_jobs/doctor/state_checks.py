"""Whether the stored states are those of the rows' tokens, before the final norm, and of the layers named."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from draftmill_api.jobconfig import JobModel
from draftmill_jobs.doctor.evidence import Answers, Patient
from draftmill_jobs.doctor.verdict import Finding, NotLookedAtError, Outcome
from draftmill_jobs.errors import JobRefusedError

_POSITIONS: Final = 2048  # at which the target's whole distribution is formed
_AT_ONCE: Final = 128
_ENOUGH_GREEDY, _LEAST_GREEDY = 0.97, 0.90  # share of greedy tokens that are the likeliest
_ENOUGH_SURPRISE, _MOST_SURPRISE = 0.5, 1.5  # nats above the entropy
_NORMED: Final = 0.02  # spread of the sizes of vectors that have been normed
_REFERENCE_ROWS, _REFERENCE_TOKENS = 4, 256
_FITS: Final = 0.2  # relative error up to which states are those of a layer
_MEMORY_SHARE: Final = 0.5  # of what is free, for loading the target


def check_norm(patient: Patient) -> Finding:
    """The last state is stored before the final norm: once normed, all vectors have the same size."""
    norm = patient.tensors.norm.float()
    used = norm.abs() > norm.abs().max() * 1e-3
    undone = patient.answers.last[:, used] / norm[used]  # [J, H]
    size = undone.square().mean(-1).sqrt()
    spread = float(size.std() / size.mean())
    found = f"sizes without the norm's weight: mean {float(size.mean()):.3g}, spread {spread:.1%}"
    if spread < _NORMED and abs(float(size.mean()) - 1) < 10 * _NORMED:
        return Finding(
            Outcome.WRONG,
            f"{found}: the last states have been through the final norm, and the teacher norms them again",
        )
    return Finding(Outcome.FINE, found)


def check_teacher(patient: Patient) -> Finding:
    """The last state, by final norm and lm_head, says what the row says.

    Greedy answers are the likeliest tokens. Sampled ones are not, but surprise the target no more than its
    entropy: states of other tokens surprise it far more.
    """
    answers = patient.answers
    chosen = np.unique(np.linspace(0, len(answers.said) - 1, _POSITIONS).astype(int))
    right, surprise, entropy = _ask(patient, answers, torch.from_numpy(chosen))
    greedy = answers.greedy[chosen]
    if greedy.any():
        share = float(right[greedy].mean())
        found = f"{share:.1%} of {int(greedy.sum())} greedy tokens are the likeliest by the last state"
        if share >= _ENOUGH_GREEDY:
            return Finding(Outcome.FINE, found)
        outcome = Outcome.WORTH_A_LOOK if share >= _LEAST_GREEDY else Outcome.WRONG
        return Finding(outcome, f"{found}: the states are not those of the tokens")
    beyond = float((surprise - entropy).mean())
    found = (
        f"{len(chosen)} sampled tokens surprise the target by {float(surprise.mean()):.2f} nats, its entropy "
        f"is {float(entropy.mean()):.2f}; {float(right.mean()):.1%} are its likeliest"
    )
    if beyond <= _ENOUGH_SURPRISE:
        return Finding(Outcome.FINE, found)
    outcome = Outcome.WORTH_A_LOOK if beyond <= _MOST_SURPRISE else Outcome.WRONG
    return Finding(outcome, f"{found}: the states are not those of the tokens")


def check_layers(patient: Patient) -> Finding:
    """Which layers the stored states are really of: the target computes some rows again, all layers of it."""
    labels = [*patient.shape.layer_ids, patient.shape.layers]
    rows = [row for row in patient.rows.values() if len(row.mask) >= 2][:_REFERENCE_ROWS]
    streams = _streams(patient, [row.token_ids[:_REFERENCE_TOKENS] for row in rows])
    stored = torch.cat([row.states[:_REFERENCE_TOKENS].float() for row in rows])  # [T, labels, H]
    errors = np.array([[_error(stored[:, at], stream) for stream in streams] for at in range(len(labels))])
    wrong = [sentence for label, row in zip(labels, errors, strict=True) if (sentence := _misfit(label, row))]
    if wrong:
        return Finding(Outcome.WRONG, "; ".join(wrong))
    worst = max(row[label] for label, row in zip(labels, errors, strict=True))
    return Finding(Outcome.FINE, f"{labels} are what the target computes, to {worst:.1g}")


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


class _Asked(NamedTuple):
    """By the target's distribution at some positions: is the row's token its likeliest, surprise, entropy."""

    right: NDArray[np.float64]
    surprise: NDArray[np.float64]
    entropy: NDArray[np.float64]


def _ask(patient: Patient, answers: Answers, chosen: Tensor) -> _Asked:
    right, surprise, entropy = list[Tensor](), list[Tensor](), list[Tensor]()
    for part in chosen.split(_AT_ONCE):
        said = answers.said[part]
        log_probabilities = patient.teacher.log_probabilities(answers.last[part])  # [P, V]
        right.append(log_probabilities.argmax(-1) == said)
        surprise.append(-log_probabilities.gather(1, said[:, None])[:, 0])
        entropy.append(-(log_probabilities.exp() * log_probabilities).sum(-1))
    return _Asked(*(torch.cat(part).double().numpy() for part in (right, surprise, entropy)))


def _streams(patient: Patient, rows: Sequence[NDArray[np.int32]]) -> list[Tensor]:
    """The residual stream that enters each layer, and what leaves the last, `[T, H]` each."""
    if patient.target is None:
        raise NotLookedAtError("it needs the target's folder: give --target")
    _check_memory(patient.target)
    from draftmill_jobs.extract.transformers_model import load_model  # noqa: PLC0415 - heavy

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
    found = torch.cat([torch.from_numpy(states) for row in rows for states in model.states([row])])
    return list(found.unbind(1))


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
