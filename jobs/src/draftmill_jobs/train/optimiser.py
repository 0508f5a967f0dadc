"""AdamW with what surrounds it: learning rate, clipping, the pull to the start, its state by name."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final, assert_never

import torch
from torch import Tensor, nn

from draftmill_api.v1alpha1.draftertrain import LearningRateSchedule
from draftmill_jobs.train.settings import Training

_BETAS: Final = (0.9, 0.95)
_MOMENTS: Final = ("exp_avg", "exp_avg_sq")


def learning_rate(settings: Training, step: int, total: int) -> float:
    """The rate of optimiser step `step`, from 0: it rises over the warm-up, then falls to zero at `total`."""
    if step < settings.warmup_steps:
        return settings.learning_rate * (step + 1) / settings.warmup_steps
    done = (step - settings.warmup_steps) / max(1, total - settings.warmup_steps)
    match settings.schedule:
        case LearningRateSchedule.COSINE:
            share = (1 + math.cos(math.pi * min(1.0, done))) / 2
        case LearningRateSchedule.LINEAR:
            share = max(0.0, 1 - done)
        case LearningRateSchedule.CONSTANT:
            share = 1.0
        case _:
            assert_never(settings.schedule)
    return settings.learning_rate * share


class Optimiser:
    """Steps the weights of a drafter.

    Args:
        model: All its parameters are trained, and are float32.
        settings: Of the training.
        start: Weights that they are pulled to, when the settings say so.
    """

    def __init__(self, model: nn.Module, settings: Training, start: Mapping[str, Tensor]) -> None:
        self._settings = settings
        self._names = dict(model.named_parameters())
        pulled = self._names if settings.l2_to_init else {}
        self._start = {name: start[name].to(parameter.device) for name, parameter in pulled.items()}
        self._adam = torch.optim.AdamW(
            list(self._names.values()), lr=settings.learning_rate, betas=_BETAS, weight_decay=0.0, fused=True
        )

    @property
    def parameters(self) -> list[nn.Parameter]:
        """In a fixed order."""
        return list(self._names.values())

    def step(self, rate: float) -> float:
        """Applies the gradients, which are then gone. Returns their norm before clipping."""
        for name, start in self._start.items():
            parameter = self._names[name]
            assert parameter.grad is not None  # noqa: S101 - a step follows a backward pass
            parameter.grad.add_(parameter.detach() - start, alpha=self._settings.l2_to_init)
        norm = nn.utils.get_total_norm([x.grad for x in self.parameters if x.grad is not None])
        # Clipped where AdamW reads them, without a pass of its own: the fused kernel divides by this.
        self._adam.grad_scale = (norm / self._settings.gradient_clip).clamp_(min=1.0)  # type: ignore[attr-defined]
        for group in self._adam.param_groups:
            group["lr"] = rate
        self._adam.step()
        self._adam.zero_grad(set_to_none=True)
        return float(norm)

    def moments(self) -> dict[str, Tensor]:
        """The state, by the parameters' names."""
        return {
            f"{name}.{key}": tensor
            for name, parameter in self._names.items()
            for key, tensor in self._state_of(parameter)
        }

    def restore(self, moments: Mapping[str, Tensor]) -> None:
        """Takes a state back.

        Raises:
            KeyError: It is of another drafter.
        """
        for name, parameter in self._names.items():
            self._adam.state[parameter] = {
                key: moments[f"{name}.{key}"].to(parameter.device, copy=True) for key in (*_MOMENTS, "step")
            }

    def _state_of(self, parameter: nn.Parameter) -> Iterator[tuple[str, Tensor]]:
        state = self._adam.state[parameter]
        return ((key, state[key]) for key in (*_MOMENTS, "step") if key in state)
