"""Trainers, killed at random instants and started again until they are done."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import torch
from safetensors.torch import load_file

from draftmill_api.exitcode import ExitCode
from draftmill_jobs.train.checkpoint import Checkpoints
from draftmill_jobs.train.folders import CHECKPOINTS
from tests.support.train_job import TrainJob
from tests.support.trainer_processes import children, newest_weights, start
from tests.support.waiting import quiet_for, until

_START = 120.0  # seconds within which a trainer must have its first new checkpoint
_LONGEST_WAIT = 0.3  # seconds from a sign of progress to the blow


def train_through_kills(folder: Path, *, kills: int, ranks: int, seed: int) -> None:
    """The weights are those of a training that nobody disturbed, bit for bit, in the end and as exported.

    Args:
        folder: An empty one.
        kills: Of a process of the training, with SIGKILL.
        ranks: Processes of each training; the one that is killed is any of them.
        seed: Of the instants and the victims.
    """
    rng = random.Random(seed)
    training = {"epochs": 12 * kills}
    fields = {"checkpoint": {"everySteps": 2, "keep": 2}}
    whole, killed = (
        TrainJob(folder / name, training=training, fields=fields) for name in ("whole", "killed")
    )
    assert start(whole, ranks).wait() == ExitCode.DONE
    for _ in range(kills):
        _kill_one(killed, ranks, rng)
    assert start(killed, ranks).wait() == ExitCode.DONE

    assert _same(newest_weights(whole.output), newest_weights(killed.output))
    assert _same(_exported(whole), _exported(killed))
    assert killed.finish().steps == whole.finish().steps


def _kill_one(job: TrainJob, ranks: int, rng: random.Random) -> None:
    """Kills one process of the training a random time after its first new checkpoint."""
    checkpoints = Checkpoints(job.output / CHECKPOINTS, 2)
    before = checkpoints.steps()
    process = start(job, ranks)
    until(lambda: process.poll() is not None or checkpoints.steps() != before, _START, "a new checkpoint")
    quiet_for(rng.uniform(0, _LONGEST_WAIT))
    assert process.poll() is None, "the training was over before it could be killed"
    os.kill(rng.choice([process.pid, *children(process.pid)]), signal.SIGKILL)
    assert process.wait() in (-signal.SIGKILL, ExitCode.FAILED)


def _exported(job: TrainJob) -> dict[str, torch.Tensor]:
    return load_file(job.output / "drafter" / "vllm" / "model.safetensors")


def _same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
