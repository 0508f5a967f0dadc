"""The generator as a program, killed at random instants while a server with a slow tail answers."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from tests.support.engine_server import answer_ids
from tests.support.job import Job, prompts, unique
from tests.support.killing_worker import Starter, kill_until_done
from tests.support.talks import check_histories, talks
from tests.support.tiny_model import TinyModel, make_tiny_model

_DATASETS = {"A": 2400, "B": 600}
_REPOSITORY = Path(__file__).resolve().parents[2]


@contextmanager
def server_program(model: TinyModel, *options: str) -> Iterator[str]:
    """A server in a process of its own; yields its address."""
    command = [sys.executable, "-m", "tests.support.engine_server", "--model", str(model.path), *options]
    process = subprocess.Popen(command, cwd=_REPOSITORY, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.communicate()


def slow_tailed_server(model: TinyModel) -> AbstractContextManager[str]:
    """The same; 8 % of its answers take 15 times as long."""
    return server_program(model, "--delay", "0.05", "--tail", "0.08")


def generate_through_kills(folder: Path, starter: Starter, *, kills: int, seed: int) -> None:
    """Every row has its own answer exactly once in the end, and the files pass the finish step."""
    job = Job(folder / "job", make_tiny_model(folder / "model"))
    job.datasets = {name: prompts(count) for name, count in _DATASETS.items()}
    with slow_tailed_server(job.model) as url:
        job.endpoints = [{"name": "s0", "url": url, "engine": "VLLM"}]
        assert kill_until_done(job, starter, kills=kills, rng=random.Random(seed)) == kills
    for name, count in _DATASETS.items():
        lines = job.lines(dataset=name)
        assert len(unique(lines)) == count
        assert all(line["output_ids"] == answer_ids(job.model, line["prompt_ids"]) for line in lines)
    assert job.finish().progress.ok == sum(_DATASETS.values())


def talk_through_kills(folder: Path, starter: Starter, *, kills: int, seed: int, conversations: int) -> None:
    """Every turn has its own answer exactly once, with its sample's own answers before it."""
    job = Job(folder / "job", make_tiny_model(folder / "model"))
    job.datasets, job.dataset_fields = {"A": talks(conversations)}, {"turns": "EveryTurn"}
    with slow_tailed_server(job.model) as url:
        job.endpoints = [{"name": "s0", "url": url, "engine": "VLLM"}]
        assert kill_until_done(job, starter, kills=kills, rng=random.Random(seed)) == kills
    check_histories(job)
    finished = job.finish().progress
    assert (finished.done + finished.skipped, finished.errors) == (finished.total, 0)
