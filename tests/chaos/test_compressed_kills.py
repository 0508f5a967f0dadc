"""The kills of the generator while it compresses what it writes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.support.job import Job, prompts, unique
from tests.support.killing_worker import ForkedWorker, kill_until_done
from tests.support.server_program import slow_tailed_server
from tests.support.tiny_model import make_tiny_model

pytestmark = pytest.mark.chaos


@pytest.mark.parametrize("seed", range(3))
def test_killed_at_random_instants_no_frame_is_lost_or_doubled(tmp_path: Path, seed: int) -> None:
    job = Job(tmp_path / "job", make_tiny_model(tmp_path / "model"))
    job.compression = "Zstd"
    job.datasets = {"A": prompts(1500)}
    with slow_tailed_server(job.model) as url:
        job.endpoints = [{"name": "s0", "url": url, "engine": "VLLM"}]
        assert kill_until_done(job, ForkedWorker("generate"), kills=10, rng=random.Random(seed)) == 10
    assert len(unique(job.lines())) == 1500
    assert job.finish().progress.ok == 1500
