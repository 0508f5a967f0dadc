"""Steps that have no use for torch leave out the half gigabyte that it takes where it is installed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from draftmill_jobs.shared.torchless import without_torch
from tests.support.extract_job import ExtractJob
from tests.support.headed_model import make_headed_model
from tests.support.job import Job
from tests.support.server_program import server_program
from tests.support.tiny_model import make_tiny_model

MEGABYTES: Final = 200
"""With everything that the steps load: 130 when this was written."""
_PROGRAM: Final = """
import json
import sys
from draftmill_jobs.main import main
from tests.support.memory import peak_memory

_, config, *steps = sys.argv
codes = [main([step, "--config", config]) for step in steps]
print(json.dumps([codes, "torch" in sys.modules, peak_memory() / 1e6]))
"""

_OWN_TOKENIZER: Final = """
from torch import TensorType
from transformers import PreTrainedTokenizerFast


class OwnTokenizer(PreTrainedTokenizerFast):
    pass
"""


def run(config: Path, *steps: str) -> tuple[list[int], bool, float]:
    """Exit codes, whether torch was imported, and peak megabytes, of a process that takes these steps."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(config), *steps],
        env={**os.environ, "HF_HOME": str(config.parent / "hub")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    codes, has_torch, megabytes = json.loads(done.stdout.splitlines()[-1])
    return codes, has_torch, megabytes


def test_plan_generate_and_finish_of_answers_take_little_memory_though_torch_is_installed(job: Job) -> None:
    with server_program(job.model) as url:
        job.endpoints = [{"name": "s0", "url": url, "engine": "VLLM"}]
        codes, has_torch, megabytes = run(job.write(), "plan", "generate", "finish")

    assert (codes, has_torch) == ([0, 0, 0], False)
    assert megabytes < MEGABYTES


def test_so_does_the_plan_of_an_extraction_by_a_server(tmp_path: Path) -> None:
    job = ExtractJob(tmp_path / "job", make_headed_model(tmp_path / "model")).add_many(3)
    job.fields = {"backend": "VLLM", "staging": str(tmp_path / "staging")}
    codes, has_torch, megabytes = run(job.write(), "plan")

    assert (codes, has_torch) == ([0], False)
    assert megabytes < MEGABYTES


def test_the_plan_of_a_dataset_of_the_hub_does_not_ask_for_it(job: Job) -> None:
    """The library of such datasets takes any `torch` in `sys.modules` for one that can be used."""
    job.write()
    source = {"huggingFace": {"repo": str(job.folder), "split": "train"}}
    config = json.loads(job.path.read_text())
    config["datasets"][0]["source"] = source
    job.path.write_text(json.dumps(config))
    codes, has_torch, _ = run(job.path, "plan")

    assert (codes, has_torch) == ([0], False)


def test_a_tokenizer_whose_own_code_imports_it_gets_it(job: Job) -> None:
    """As that of glm-4-9b-chat does, for a type."""
    model = make_tiny_model(job.folder / "model").path  # that of other tests stays as it is
    (model / "tokenization_own.py").write_text(_OWN_TOKENIZER)
    settings = model / "tokenizer_config.json"
    own = {
        "tokenizer_class": "OwnTokenizer",
        "auto_map": {"AutoTokenizer": [None, "tokenization_own.OwnTokenizer"]},
    }
    settings.write_text(json.dumps(json.loads(settings.read_text()) | own))
    config = json.loads(job.write().read_text())
    config["model"] |= {"path": str(model), "trustRemoteCode": True}
    job.path.write_text(json.dumps(config))
    codes, has_torch, _ = run(job.path, "plan")

    assert (codes, has_torch) == ([0], True)


def test_torch_is_there_again_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with without_torch():
        with without_torch():
            assert importlib.util.find_spec("torch") is None
        assert importlib.util.find_spec("torch") is None
    assert importlib.util.find_spec("torch") is not None
