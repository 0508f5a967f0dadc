"""The generator as a program, killed at random instants while a server with a slow tail answers."""

from __future__ import annotations

import random
from contextlib import ExitStack
from pathlib import Path

from tests.support.engine_server import answer_ids
from tests.support.job import Job, prompts, unique
from tests.support.killing_worker import ForkedWorkers, Starter, kill_until_done
from tests.support.server_program import server_program, slow_tailed_server
from tests.support.talks import check_histories, talks
from tests.support.tiny_model import make_tiny_model

_DATASETS = {"A": 2400, "B": 600}


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


def settle_each_row_once(
    folder: Path, *, workers: int, servers: int, rows: int = 2000, kills: int = 100, terminated: float = 0.0
) -> None:
    """Kills the workers of one run at random instants, and says how many rows are lost or doubled in the end.

    Public failure 6 (SpecForge#458, DeepSpec#29): a resume by the number of lines loses the slow ones.
    Public failures 1 and 2 (curator#265 and others): answers that take 15 times as long are not given up.
    """
    job = Job(folder / "job", make_tiny_model(folder / "model"))
    job.datasets, job.generation = {"A": prompts(rows)}, {"concurrency": 6}
    slow = ("--delay", "0.15", "--tail", "0.08")
    with ExitStack() as stack:
        urls = [stack.enter_context(server_program(job.model, *slow)) for _ in range(servers)]
        job.endpoints = [
            {"name": f"s{number}", "url": url, "engine": "VLLM"} for number, url in enumerate(urls)
        ]
        starter = ForkedWorkers("generate", workers)
        rng = random.Random(0)
        assert kill_until_done(job, starter, kills=kills, rng=rng, terminated=terminated) == kills
    lines = job.lines()
    ids = {line["id"] for line in lines}
    lost, doubled = rows - len(ids), len(lines) - len(ids)
    print(f"lost {lost} doubled {doubled}")
    assert (lost, doubled) == (0, 0)
    assert all(line["output_ids"] == answer_ids(job.model, line["prompt_ids"]) for line in lines)
    assert job.finish().progress.ok == rows
