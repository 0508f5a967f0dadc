"""`python -m draftmill_jobs.train`: from a store on disk to folders for engines, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from draftmill_api.exitcode import ExitCode
from draftmill_jobs.store import StoreWriter
from draftmill_jobs.train.__main__ import main
from draftmill_jobs.train.checkpoint import Checkpoints
from draftmill_jobs.train.training import CHECKPOINTS, DRAFTER
from tests.support.states import ALONE, RUN
from tests.support.training import Case, Rows, binding, start_program, store_row
from tests.support.waiting import until

FILES = ["config.json", "model.safetensors"]


def write_config(folder: Path, **training: object) -> Path:
    rows = Rows(count=12)
    store = folder / "store"
    with StoreWriter(store, binding(), shard_bytes=1 << 20, run=RUN, share=ALONE) as writer:
        for number in range(rows.count):
            writer.append(store_row(rows, number), lambda: None)
        writer.seal()
    config = Case(folder, training=dict(training)).config().model_copy(update={"store": str(store)})
    path = folder / "config.json"
    path.write_text(json.dumps(config.to_json()))
    return path


def test_a_store_becomes_a_drafter_for_each_engine(tmp_path: Path) -> None:
    code = main([str(write_config(tmp_path, epochs=1))])
    drafter = tmp_path / "output" / DRAFTER

    assert code == ExitCode.DONE
    for engine in ("vllm", "sglang"):
        assert sorted(path.name for path in (drafter / engine).iterdir()) == FILES


def test_sigterm_saves_and_ends_with_the_code_that_is_retried(tmp_path: Path) -> None:
    config = write_config(tmp_path, epochs=5_000, saveEverySteps=1)
    first, second = (steps_until_sigterm(config, tmp_path / "output" / CHECKPOINTS) for _ in range(2))

    assert 0 < first < second


def steps_until_sigterm(config: Path, folder: Path) -> int:
    """Trains on until there is a new checkpoint, then tells the process to end."""
    checkpoints = Checkpoints(folder, 2)
    before = checkpoints.steps()
    process = start_program(config)
    until(lambda: checkpoints.steps() != before or process.exitcode is not None, 240, "a new checkpoint")
    process.terminate()
    process.join()
    assert process.exitcode == ExitCode.INTERRUPTED
    return checkpoints.steps()[-1]


def test_more_gpus_than_there_are_is_a_refusal_and_no_training_on_cpus(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_config(tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), "gpusPerNode": 8}))

    assert main([str(path)]) == ExitCode.CONFIGURATION
    assert "8 GPUs are asked for and CUDA finds 0" in caplog.text
