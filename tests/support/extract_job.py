"""An ExtractRun on disk, as a laptop would have it: records, config, store."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from draftmill_api.exitcode import ExitCode
from draftmill_api.extractjob import ExtractFinishResult, ExtractJobConfig
from draftmill_api.v1alpha1.extractstatus import ExtractPlan, ExtractProgress
from draftmill_jobs.extract.finishing import finish
from draftmill_jobs.extract.planning import plan
from draftmill_jobs.extract.worker import extract
from draftmill_jobs.model.fingerprint import fingerprint
from draftmill_jobs.shared.config import load
from draftmill_jobs.store.reader import Check, Store
from tests.support.files import replace
from tests.support.tiny_model import FIRST_NUMBER, VOCABULARY


def make_record(
    number: int, prompt: Sequence[int], output: Sequence[int], *, fingerprint: str, **changes: Any
) -> dict[str, Any]:
    """A record with these tokens."""
    key = hashlib.sha256(str(number).encode()).hexdigest()[:32]
    return {
        "id": key,
        "prompt_key": key,
        "sample_id": number,
        "dataset": "A",
        "turn": 0,
        "sample": 0,
        "prompt_ids": list(prompt),
        "output_ids": list(output),
        "prompt_tokens": len(prompt),
        "completion_tokens": len(output),
        "finish_reason": "stop",
        "status": "ok",
        "think": "none",
        "messages": [{"role": "user", "content": str(number)}],
        "tools": None,
        "chat_template_kwargs": {},
        "reasoning": None,
        "content": "",
        "text": "",
        "sampling": {"temperature": 0.0},
        "model": {"name": "tiny", "fingerprint": fingerprint},
        "server": "s0",
        "attempt": 1,
        "created": "2026-01-01T00:00:00Z",
        "latency_s": 1.0,
        **changes,
    }


def random_ids(count: int, seed: int) -> list[int]:
    """Ordinary tokens of the tiny vocabulary."""
    numbers = random.Random(seed)
    return [numbers.randrange(FIRST_NUMBER, len(VOCABULARY)) for _ in range(count)]


@dataclass
class ExtractJob:
    """A config whose parts a test changes before it runs."""

    folder: Path
    model: Path
    records: list[dict[str, Any]] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=dict)
    run: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.fingerprint = fingerprint(self.model)

    @property
    def path(self) -> Path:
        return self.folder / "job.yaml"

    @property
    def input(self) -> Path:
        return self.folder / "records"

    @property
    def output(self) -> Path:
        return self.folder / "states"

    def add(self, prompt: int, output: int, **changes: Any) -> dict[str, Any]:
        """Adds a record of so many random tokens."""
        number = len(self.records)
        ids = random_ids(prompt + output, number)
        self.records.append(
            make_record(number, ids[:prompt], ids[prompt:], fingerprint=self.fingerprint, **changes)
        )
        return self.records[-1]

    def add_many(self, count: int, *, longest: int = 40) -> ExtractJob:
        """Adds records of different lengths."""
        for number in range(len(self.records), len(self.records) + count):
            lengths = random.Random(number)
            self.add(lengths.randint(1, longest // 2), lengths.randint(1, longest // 2))
        return self

    def write(self) -> Path:
        """Writes records and config."""
        for record in self.records:
            (self.input / record["dataset"]).mkdir(parents=True, exist_ok=True)
        for dataset in {record["dataset"] for record in self.records}:
            lines = [json.dumps(each) + "\n" for each in self.records if each["dataset"] == dataset]
            replace(self.input / dataset / "raw_responses.jsonl", "".join(lines))
        config = {
            "run": {"kind": "ExtractRun", **self.run},
            "model": {"name": "tiny", "path": str(self.model)},
            "records": {"path": str(self.input)},
            "output": {"path": str(self.output)},
            "backend": "Transformers",
            "layers": {"ids": [1, 2]},
            "dtype": "Float32",
            **self.fields,
        }
        replace(self.path, json.dumps(config))
        return self.path

    @property
    def config(self) -> ExtractJobConfig:
        return load(self.write(), ExtractJobConfig).config

    def plan(self) -> ExtractPlan:
        return plan(self.config)

    async def extract(self, *, within: float = 120.0, grace: float = 5.0) -> tuple[ExitCode, ExtractProgress]:
        """Runs the worker here; it must end within so many seconds."""
        self.write()
        async with asyncio.timeout(within):
            return await extract(self.path, load(self.path, ExtractJobConfig), http_port=None, grace=grace)

    def finish(self) -> ExtractFinishResult:
        return finish(self.config)

    def store(self) -> Store:
        return Store.open(self.output, check=Check.HASHES)
