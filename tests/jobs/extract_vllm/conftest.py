"""Backend VLLM against a stand-in server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from draftmill_api.jobconfig import JobModel
from draftmill_jobs.model.facts import read_model
from tests.support.extract_job import ExtractJob
from tests.support.headed_model import make_headed_model
from tests.support.states_server import StatesServer, use


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_headed_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture
async def server(tmp_path: Path, model: Path) -> AsyncIterator[StatesServer]:
    facts = read_model(JobModel(name="tiny", path=str(model))).facts
    async with StatesServer(model, facts, tmp_path / "staging") as server:
        yield server


@pytest.fixture
def job(tmp_path: Path, model: Path, server: StatesServer) -> ExtractJob:
    return use(ExtractJob(tmp_path / "job", model), server)
