"""A job on disk, as a laptop would have it: prompts, config, output; run in this process or as a program."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from draftmill_api.exitcode import ExitCode
from draftmill_api.jobconfig import SynthJobConfig
from draftmill_api.progress import FinishResult
from draftmill_api.v1alpha1.status import RunProgress
from draftmill_jobs.finish.finishing import finish
from draftmill_jobs.generate.guard import WhenPaused
from draftmill_jobs.generate.worker import generate
from draftmill_jobs.shared.config import load
from draftmill_jobs.shared.lines import raw_lines
from draftmill_jobs.shared.parts import part_paths
from tests.support.engine_server import EngineServer
from tests.support.files import replace
from tests.support.tiny_model import TinyModel

Ended = tuple[ExitCode, RunProgress]


def prompts(count: int, start: int = 0) -> list[dict[str, Any]]:
    """Distinct prompts."""
    return [{"prompt": f"w{i // 1000} w{i % 1000}"} for i in range(start, start + count)]


@dataclass
class Job:
    """A config whose parts a test changes before or while it runs."""

    folder: Path
    model: TinyModel
    datasets: dict[str, list[Any]] = field(default_factory=lambda: {"A": prompts(20)})
    endpoints: list[dict[str, str]] = field(default_factory=list)
    endpoint_fields: dict[str, dict[str, Any]] = field(default_factory=dict)
    sampling: dict[str, Any] = field(default_factory=lambda: {"maxCompletionTokens": 64})
    compression: str = "None"
    on_change: str = "Refuse"
    generation: dict[str, Any] = field(default_factory=dict)
    dataset_fields: dict[str, Any] = field(default_factory=dict)
    fields_of: dict[str, dict[str, Any]] = field(default_factory=dict)
    run: dict[str, str] = field(default_factory=dict)
    resume_token: str = ""

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    @property
    def path(self) -> Path:
        return self.folder / "job.yaml"

    @property
    def output(self) -> Path:
        return self.folder / "out"

    def use(self, *servers: EngineServer, engine: str = "VLLM") -> Job:
        """Points the endpoints to servers."""
        self.endpoints = [
            {"name": f"s{i}", "url": server.url, "engine": engine} for i, server in enumerate(servers)
        ]
        return self

    def write(self) -> Path:
        """Writes prompts and config, each whole or not at all: workers that were started before read them."""
        datasets = []
        for name, rows in self.datasets.items():
            path = self.folder / f"{name}.jsonl"
            replace(path, "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
            fields = self.dataset_fields | self.fields_of.get(name, {})
            datasets.append({"name": name, "source": {"file": {"path": str(path)}}, **fields})
        config = {
            "run": self.run,
            "model": {"name": self.model.name, "path": str(self.model.path)},
            "output": {"path": str(self.output), "compression": self.compression, "onChange": self.on_change},
            "datasets": datasets,
            "sampling": self.sampling,
            "generation": {"concurrency": 16, "connectTimeout": "2s", **self.generation},
            "endpoints": [
                endpoint | self.endpoint_fields.get(endpoint["name"], {}) for endpoint in self.endpoints
            ],
            "resumeToken": self.resume_token,
        }
        replace(self.path, json.dumps(config))
        return self.path

    async def generate(
        self,
        *,
        grace: float = 5.0,
        port: int | None = None,
        within: float = 60.0,
        when_paused: WhenPaused = WhenPaused.EXIT,
    ) -> tuple[ExitCode, RunProgress]:
        """Runs the worker here; it must end within so many seconds."""
        self.write()
        async with asyncio.timeout(within):
            return await generate(
                self.path,
                load(self.path, SynthJobConfig),
                http_port=port,
                grace=grace,
                when_paused=when_paused,
            )

    @asynccontextmanager
    async def generating(
        self, port: int | None = None, when_paused: WhenPaused = WhenPaused.EXIT
    ) -> AsyncIterator[asyncio.Task[tuple[ExitCode, RunProgress]]]:
        """Runs the worker beside the block, and cancels it at its end."""
        task = asyncio.create_task(self.generate(port=port, when_paused=when_paused))
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def finish(self) -> FinishResult:
        self.write()
        return finish(self.config)

    @property
    def config(self) -> SynthJobConfig:
        return load(self.write(), SynthJobConfig).config

    def lines(self, stem: str = "raw_responses", dataset: str = "A") -> list[dict[str, Any]]:
        """All lines of a kind; each must be whole."""
        paths = part_paths(self.output / dataset, stem)
        return [json.loads(line.raw) for path in paths for line in raw_lines(path)]

    def start(self, *arguments: str, step: str = "generate", **environment: str) -> subprocess.Popen[str]:
        """Starts a step as a program of its own."""
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "draftmill_jobs", step, "--config", str(self.write()), *arguments],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


async def until(condition: Any, *, within: float = 20.0) -> None:
    """Waits for a condition, with a deadline."""
    async with asyncio.timeout(within):
        while not condition():  # noqa: ASYNC110 - any condition
            await asyncio.sleep(0.01)


def unique(lines: Sequence[dict[str, Any]]) -> set[str]:
    """The ids, each of which must be there once."""
    ids = [line["id"] for line in lines]
    assert len(ids) == len(set(ids)), "an id is there twice"
    return set(ids)
