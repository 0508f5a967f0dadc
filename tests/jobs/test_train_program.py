"""`draftmill train`: from a store on disk to a drafter, what it says on the way, and how it ends."""

from __future__ import annotations

import json
import logging
import socket
import urllib.request
from pathlib import Path

import pytest

from draftmill_api.exitcode import ExitCode
from draftmill_api.names import TERMINATION_MESSAGE_VARIABLE
from draftmill_api.progress import Progress, TerminationMessage
from draftmill_jobs.main import main
from draftmill_jobs.train.checkpoint import Checkpoints
from draftmill_jobs.train.folders import CHECKPOINTS, DRAFTER
from tests.support.ports import free_port
from tests.support.train_job import TrainJob
from tests.support.training import start_program
from tests.support.waiting import until

FILES = ["config.json", "model.safetensors"]


@pytest.fixture
def job(tmp_path: Path) -> TrainJob:
    return TrainJob(tmp_path / "job")


def test_a_store_becomes_a_drafter_for_each_engine(
    job: TrainJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    said = tmp_path / "said"
    monkeypatch.setenv(TERMINATION_MESSAGE_VARIABLE, str(said))
    with caplog.at_level(logging.INFO):
        code = main(["train", "--config", str(job.write())])
    result = TerminationMessage.model_validate_json(said.read_bytes()).worker

    assert code == ExitCode.DONE
    for engine in ("vllm", "sglang"):
        assert sorted(path.name for path in (job.output / DRAFTER / engine).iterdir()) == FILES
    assert result is not None
    assert result.training is not None
    assert result.training.step == result.training.total == result.training.saved_step > 0
    assert float(result.training.best) >= float(result.training.acceptance_length) > 1
    assert result.training.best_checkpoint == f"checkpoints/step-{result.training.best_step:08}"
    assert "simulated acceptance length" in caplog.text
    assert "loss by step" in caplog.text
    assert list((job.output / "tensorboard").glob("events.out.tfevents.*"))


def test_progress_is_served_while_it_trains_and_sigterm_saves_it(job: TrainJob) -> None:
    job.training["epochs"] = 1000
    first = progress_until_sigterm(job)
    second = progress_until_sigterm(job)

    assert 0 < first < second


def progress_until_sigterm(job: TrainJob) -> int:
    """Trains on until `/progress` tells of new steps, then ends it; returns the step that is saved."""
    port = free_port()
    process = start_program(job.write(), "--http-port", str(port))
    checkpoints = Checkpoints(job.output / CHECKPOINTS, 2)
    before = max(checkpoints.steps(), default=0)
    until(lambda: trained_step(port) > before + 3 or process.exitcode is not None, 240, "new steps")
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
    process.terminate()
    process.join()

    assert process.exitcode == ExitCode.INTERRUPTED
    assert "draftmill_training_steps_expected" in text
    return checkpoints.steps()[-1]


def trained_step(port: int) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/progress") as answer:
            progress = Progress.model_validate_json(answer.read())
    except OSError:
        return 0
    assert progress.training is not None
    return progress.training.step


def test_more_gpus_than_there_are_is_a_refusal_and_no_training_on_cpus(
    job: TrainJob, caplog: pytest.LogCaptureFixture
) -> None:
    job.fields["gpusPerNode"] = 1

    assert main(["train", "--config", str(job.write())]) == ExitCode.CONFIGURATION
    assert "1 GPUs are asked for and CUDA finds 0" in caplog.text


@pytest.mark.parametrize("step", ["plan", "train", "evaluate", "finish"])
def test_a_port_that_something_else_listens_on_is_refused(
    step: str, job: TrainJob, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        code = main([step, "--config", str(job.write()), "--http-port", port])

    assert code == ExitCode.CONFIGURATION
    assert f"on port {port}: Address already in use; choose another by --http-port" in caplog.text


def test_an_output_that_another_run_writes_to_is_named(job: TrainJob) -> None:
    """A second trainer waits for the first, an earlier attempt of its run; SIGTERM ends the waiting."""
    job.training["epochs"] = 1000
    config = job.write()
    first = start_program(config)
    until((job.output / CHECKPOINTS / "latest").exists, 240, "a checkpoint of the first")
    port = free_port()
    second = start_program(config, "--http-port", str(port))
    until(lambda: "is being written by" in message(port), 240, "the second waits")
    for process in (second, first):
        process.terminate()
        process.join()

    assert (first.exitcode, second.exitcode) == (ExitCode.INTERRUPTED, ExitCode.INTERRUPTED)


def message(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/progress") as answer:
            return str(json.loads(answer.read())["message"])
    except OSError:
        return ""
