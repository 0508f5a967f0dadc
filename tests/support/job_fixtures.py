"""Fixtures of the tests of jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.engine_server import EngineServer
from tests.support.job import Job
from tests.support.tiny_model import Thinking, TinyModel, make_tiny_model


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[Thinking, TinyModel]:
    folder = tmp_path_factory.mktemp("models")
    return {thinking: make_tiny_model(folder / thinking.value, thinking) for thinking in Thinking}


@pytest.fixture
def model(models: dict[Thinking, TinyModel]) -> TinyModel:
    return models[Thinking.NONE]


@pytest.fixture
async def server(model: TinyModel) -> AsyncIterator[EngineServer]:
    async with EngineServer(model) as server:
        yield server


@pytest.fixture
def job(tmp_path: Path, model: TinyModel) -> Job:
    return Job(tmp_path / "job", model)
