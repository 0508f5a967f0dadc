"""`python -m tests.support.loss_peak`: what the loss alone takes at the widest vocabulary, in bytes.

Vocabulary, draft vocabulary and tokens are those of a training for Kimi-K2.5; states are as narrow as they
can be, so that nothing but what is as wide as a vocabulary counts.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import torch

from draftmill_jobs.train.losses import Wanted, divergence
from draftmill_jobs.train.target import TargetTensors
from draftmill_jobs.train.teacher import Teacher
from draftmill_jobs.train.vocabulary import DraftVocabulary
from tests.support.memory import peak_memory

VOCABULARY: Final = 163_840
DRAFT_VOCABULARY: Final = 32_000
TOKENS: Final = 4_096
_WIDTH: Final = 4


def main() -> None:
    """One forward and backward pass of the loss, and the teacher's choices over all ids."""
    head = torch.randn(VOCABULARY, _WIDTH)
    vocabulary = DraftVocabulary(np.arange(DRAFT_VOCABULARY) * 5, VOCABULARY)
    target = TargetTensors({}, head, torch.ones(_WIDTH), 1e-6, head)
    teacher = Teacher(target, vocabulary, torch.device("cpu"), torch.float32)
    last = torch.randn(TOKENS, _WIDTH)
    hidden = torch.randn(TOKENS, _WIDTH, requires_grad=True)
    drafter = torch.randn(DRAFT_VOCABULARY, _WIDTH, requires_grad=True)
    before = peak_memory()
    wanted = Wanted.of(teacher.log_probabilities(last))
    divergence(hidden, drafter, wanted, 1 / TOKENS).weighted.backward()
    teacher.choices(last)
    print(peak_memory() - before)


if __name__ == "__main__":
    main()
