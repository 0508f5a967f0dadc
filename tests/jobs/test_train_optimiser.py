"""Learning rate, clipping, the pull to the start, and the optimiser's state."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from draftmill_api.v1alpha1.draftertrain import LearningRateSchedule
from draftmill_jobs.train.optimiser import _BETAS, Optimiser, learning_rate
from draftmill_jobs.train.settings import Training

RATE = 0.1


def settings(**changes: object) -> Training:
    return Training.model_validate({"learning_rate": RATE, "warmup_steps": 4, **changes})


def model() -> nn.Linear:
    made = nn.Linear(3, 2, bias=False)
    nn.init.ones_(made.weight)
    return made


@pytest.mark.parametrize(
    ("schedule", "halfway"),
    [
        (LearningRateSchedule.COSINE, RATE / 2),
        (LearningRateSchedule.LINEAR, RATE / 2),
        (LearningRateSchedule.CONSTANT, RATE),
    ],
)
def test_the_rate_rises_and_then_goes_as_it_is_told(schedule: LearningRateSchedule, halfway: float) -> None:
    rates = [learning_rate(settings(schedule=schedule), step, 24) for step in range(25)]
    end = RATE if schedule is LearningRateSchedule.CONSTANT else 0.0

    assert rates[:5] == pytest.approx([RATE / 4, RATE / 2, 3 * RATE / 4, RATE, RATE])
    assert rates[14] == pytest.approx(halfway)
    assert rates[24] == pytest.approx(end, abs=1e-9)


def test_a_cosine_is_a_cosine() -> None:
    assert learning_rate(settings(), 4 + 5, 4 + 20) == pytest.approx(RATE * (1 + math.cos(math.pi / 4)) / 2)


def test_the_norm_is_told_as_it_was_before_clipping() -> None:
    linear = model()
    linear.weight.grad = torch.full_like(linear.weight, 2.0)

    assert Optimiser(linear, settings(), {}).step(RATE) == pytest.approx(2 * math.sqrt(6))


@pytest.mark.parametrize(("gradient", "taken"), [(2.0, 1 / math.sqrt(6)), (0.1, 0.1)], ids=["long", "short"])
def test_a_gradient_that_is_longer_than_the_clip_is_taken_at_its_length(
    gradient: float, taken: float
) -> None:
    """Whatever torch is installed: that the fused kernel divides by `grad_scale` stands in no document."""
    linear = model()
    linear.weight.grad = torch.full_like(linear.weight, gradient)
    optimiser = Optimiser(linear, settings(gradient_clip=1.0), {})
    optimiser.step(RATE)

    first, second = (optimiser.moments()[f"weight.{moment}"] for moment in ("exp_avg", "exp_avg_sq"))
    one, two = _BETAS
    assert first.flatten().tolist() == pytest.approx([(1 - one) * taken] * 6)
    assert second.flatten().tolist() == pytest.approx([(1 - two) * taken**2] * 6)


def test_weights_are_pulled_to_where_they_started() -> None:
    linear = model()
    optimiser = Optimiser(linear, settings(l2_to_init=0.5), {"weight": torch.zeros(2, 3)})
    for _ in range(20):
        linear.weight.grad = torch.zeros_like(linear.weight)
        optimiser.step(RATE)

    assert (linear.weight.abs() < 0.3).all()


def test_a_restored_optimiser_steps_as_the_one_that_was_saved() -> None:
    one, other = model(), model()
    first, second = (Optimiser(linear, settings(), {}) for linear in (one, other))
    for linear, optimiser in ((one, first), (other, second)):
        linear.weight.grad = torch.arange(6.0).view(2, 3)
        optimiser.step(RATE)
    third = Optimiser(other, settings(), {})
    third.restore(first.moments())
    for linear, optimiser in ((one, first), (other, third)):
        linear.weight.grad = torch.ones(2, 3)
        optimiser.step(RATE)

    assert torch.equal(one.weight, other.weight)
