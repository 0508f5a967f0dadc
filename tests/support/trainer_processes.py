"""Trainings in processes of their own, as `draftmill train` starts them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

from draftmill_jobs.train.folders import CHECKPOINTS
from tests.support.train_job import TrainJob


def start(
    job: TrainJob, processes: int, http_port: int | None = None, **place: str
) -> subprocess.Popen[bytes]:
    """`draftmill train` on a machine that runs so many processes."""
    command = [sys.executable, "-m", "draftmill_jobs", "train", "--config", str(job.write())]
    if http_port is not None:
        command += ["--http-port", str(http_port)]
    environment = {**os.environ, "PET_NPROC_PER_NODE": str(processes), "OMP_NUM_THREADS": "1", **place}
    return subprocess.Popen(command, env=environment)


def children(pid: int) -> list[int]:
    """Ids of a process's children."""
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def newest_weights(output: Path) -> dict[str, torch.Tensor]:
    """The weights of the newest checkpoint in a training's folder."""
    folder = output / CHECKPOINTS
    return load_file(folder / (folder / "latest").read_text() / "model.safetensors")
