"""Whether the stored states are those of the rows' tokens, and the last of them before the final norm."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from draftmill_jobs.doctor.evidence import Answers, Patient
from draftmill_jobs.doctor.verdict import Finding, Outcome

_POSITIONS: Final = 2048  # at which the target's whole distribution is formed
_AT_ONCE: Final = 128
_ENOUGH_GREEDY, _LEAST_GREEDY = 0.97, 0.90  # share of greedy tokens that are the likeliest
_ENOUGH_SURPRISE, _MOST_SURPRISE = 0.5, 1.5  # nats above the entropy
_NORMED: Final = 0.02  # spread of the sizes of vectors that have been normed


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
