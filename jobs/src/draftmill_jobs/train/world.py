"""The processes of one training. Each computes its share of a batch; sums over all of them make the step.

The environment is what torchrun and Kubeflow set: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT.
Without it there is one process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import torch
from torch import distributed

from draftmill_jobs.errors import JobFailedError, JobRefusedError
from draftmill_jobs.shared.cores import usable_cores

RANK_LOST: Final = "RankLost"
"""The reason of a process that ends because another one has."""
_PATIENCE: Final = timedelta(minutes=10)  # a rank that stays away so long is lost


@dataclass(frozen=True, slots=True)
class World:
    """One process among those of the training.

    Attributes:
        rank: Its number.
        ranks: How many there are.
        device: Where it computes.
    """

    rank: int
    ranks: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        """Whether it is the one that writes."""
        return self.rank == 0

    def sums(self, values: Sequence[float]) -> list[float]:
        """The sum of each value over all processes."""
        if self.ranks == 1:
            return list(values)
        summed = torch.tensor(values, dtype=torch.float64, device=self.device)
        with _together():
            distributed.all_reduce(summed)
        return [float(value) for value in summed.tolist()]

    def sum_gradients(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Makes every gradient the sum over all processes; one that is not there counts as zero."""
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        if self.ranks == 1:
            return
        with _together():
            pending = [distributed.all_reduce(parameter.grad, async_op=True) for parameter in parameters]
            for work in pending:
                if work is not None:
                    work.wait()

    def union(self, numbers: Sequence[int]) -> set[int]:
        """The numbers that any process has."""
        return set[int]().union(*self._everyones(numbers))

    def newest_of_all(self, steps: Sequence[int]) -> int | None:
        """The highest number that every process has."""
        return max(set.intersection(*(set(each) for each in self._everyones(steps))), default=None)

    def _everyones(self, numbers: Sequence[int]) -> list[Sequence[int]]:
        if self.ranks == 1:
            return [numbers]
        everyones: list[Sequence[int]] = [()] * self.ranks
        with _together():
            distributed.all_gather_object(everyones, list(numbers))
        return everyones


@contextmanager
def joined(gpus: int) -> Iterator[World]:
    """Joins the other processes, and leaves them at the end.

    Args:
        gpus: Of each node; 0 computes on CPUs.

    Raises:
        JobRefusedError: There are fewer GPUs than that. Nothing is trained on a CPU that was meant for a GPU.
        JobFailedError: Another process does not come, or is lost.
    """
    rank, ranks = rank_of_this_process(), int(os.environ.get("WORLD_SIZE", "1"))
    device = _device(gpus, int(os.environ.get("LOCAL_RANK", "0")))
    if ranks > 1:
        with _together():
            distributed.init_process_group("gloo" if device.type == "cpu" else "nccl", timeout=_PATIENCE)
    try:
        yield World(rank, ranks, device)
    finally:
        if ranks > 1:
            distributed.destroy_process_group()


def rank_of_this_process() -> int:
    """Its number; 0 when it is alone."""
    return int(os.environ.get("RANK", "0"))


@contextmanager
def _together() -> Iterator[None]:
    """Whatever goes wrong between processes means that one of them is gone."""
    try:
        yield
    except RuntimeError as error:
        raise JobFailedError(
            RANK_LOST, f"another process of the training has ended or cannot be reached: {error}"
        ) from error


def _device(gpus: int, local_rank: int) -> torch.device:
    if gpus == 0:
        if "OMP_NUM_THREADS" not in os.environ:
            torch.set_num_threads(usable_cores())  # more of them than cores wait for each other, busily
        return torch.device("cpu")
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if found < gpus:
        raise JobRefusedError(
            "NoGPU",
            f"{gpus} GPUs are asked for and CUDA finds {found}; set gpusPerNode to 0 to train on CPUs",
        )
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)
