"""The divergence, and the teacher that it is measured from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from draftmill_jobs.train import losses
from draftmill_jobs.train.losses import Wanted, divergence, plain_divergence
from draftmill_jobs.train.target import TargetTensors
from draftmill_jobs.train.teacher import Teacher
from draftmill_jobs.train.vocabulary import DraftVocabulary

CPU = torch.device("cpu")
REPOSITORY = Path(__file__).resolve().parents[2]


def random_case(rows: int, width: int, size: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    made = torch.Generator().manual_seed(7)
    hidden, head, logits = (
        torch.randn(*shape, generator=made, dtype=torch.float64).to(dtype)
        for shape in ((rows, size), (width, size), (rows, width))
    )
    return hidden.requires_grad_(), head.requires_grad_(), (3 * logits).log_softmax(-1)


@pytest.mark.parametrize("chunk", [1, 100, 1 << 20], ids=lambda chunk: f"{chunk} elements at a time")
def test_loss_and_gradients_are_those_of_the_definition(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(losses, "_CHUNK_ELEMENTS", chunk)
    hidden, head, teacher = random_case(11, 30, 8, torch.float64)

    found = divergence(hidden, head, Wanted.of(teacher.clone()), 0.25, choose=True)
    expected = plain_divergence(hidden, head, teacher, 0.25)

    assert found.weighted.item() == pytest.approx(expected.item(), rel=1e-12)
    assert found.plain.item() == pytest.approx(4 * expected.item(), rel=1e-12)
    assert found.choices.tolist() == (hidden @ head.T).argmax(-1).tolist()
    mine, theirs = (torch.autograd.grad(loss, [hidden, head]) for loss in (found.weighted, expected))
    assert all(torch.allclose(a, b, rtol=1e-10) for a, b in zip(mine, theirs, strict=True))


def test_the_loss_is_exact_in_float32_though_the_products_are_in_bfloat16() -> None:
    hidden, head, teacher = (x.detach() for x in random_case(64, 2_000, 32, torch.float32))
    narrow = hidden.bfloat16()
    logits = (narrow @ head.bfloat16().T).double()
    expected = (teacher.double().exp() * (teacher.double() - logits.log_softmax(-1))).sum() / 64

    assert divergence(narrow, head, Wanted.of(teacher.clone()), 1 / 64).weighted.item() == pytest.approx(
        expected.item(), rel=1e-5
    )


def test_a_drafter_that_agrees_loses_nothing() -> None:
    hidden, head, _ = random_case(5, 30, 8, torch.float64)
    teacher = (hidden @ head.T).log_softmax(-1).detach()

    assert divergence(hidden, head, Wanted.of(teacher), 1.0).weighted.item() == pytest.approx(0, abs=1e-12)


def test_the_teacher_is_the_targets_distribution_over_what_the_drafter_can_say() -> None:
    made = torch.Generator().manual_seed(1)
    head, last = torch.randn(40, 8, generator=made), torch.randn(6, 8, generator=made)
    norm = torch.linspace(0.5, 2, 8)
    vocabulary = DraftVocabulary(np.array([3, 4, 17, 39]), 40)
    teacher = Teacher(TargetTensors({}, head, norm, 1e-6, head), vocabulary, CPU, torch.float32)
    normed = last * torch.rsqrt(last.pow(2).mean(-1, keepdim=True) + 1e-6) * norm
    whole = (normed @ head.T).softmax(-1)
    inside = whole[:, vocabulary.target_ids] / whole[:, vocabulary.target_ids].sum(-1, keepdim=True)

    assert torch.allclose(teacher.log_probabilities(last).exp(), inside, atol=1e-6)
    assert teacher.choices(last).tolist() == whole.argmax(-1).tolist()


def test_the_teachers_choice_is_the_lower_id_among_equals_wherever_pieces_begin() -> None:
    head = torch.zeros(40_000, 2)
    head[[16_384, 20_000, 39_999], 0] = 5
    teacher = Teacher(
        TargetTensors({}, head, torch.ones(2), 0.0, head),
        DraftVocabulary.of_everything(40_000),
        CPU,
        torch.float32,
    )

    assert teacher.choices(torch.tensor([[1.0, 0.0], [-1.0, 0.0]])).tolist() == [16_384, 0]


def test_at_a_vocabulary_of_163840_nothing_as_wide_as_it_is_kept() -> None:
    """Reported failure 36 (SpecForge#466): the loss took all memory.

    4,096 tokens: one float32 tensor over all ids would take 2.7 GB, the teacher over 32,000 takes 0.5.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.loss_peak"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
        timeout=250,
    )

    assert int(done.stdout) < 1.5e9
