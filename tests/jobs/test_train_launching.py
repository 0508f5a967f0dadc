"""Several processes of one machine: one exit code, one set of last words, nobody left behind."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from pathlib import Path

import pytest
import torch

from draftmill_api.exitcode import ExitCode
from draftmill_jobs.train.checkpoint import Checkpoints
from draftmill_jobs.train.folders import CHECKPOINTS
from draftmill_jobs.train.launching import launch
from draftmill_jobs.train.places import Machine
from tests.support.job_pages import progress_when
from tests.support.ports import free_port
from tests.support.train_job import TrainJob
from tests.support.trainer_processes import children, newest_weights, start
from tests.support.waiting import until

TWO = Machine(number=0, machines=1, processes=2, address="127.0.0.1", port=0)

# What a rank does: it leaves its last words, and ends with a code, or waits to be told.
RANK = """
import json, os, pathlib, signal, sys, time
def end(code, reason):
    words = {"refusal": {"reason": reason, "message": f"rank {os.environ['RANK']}"}} if reason else {}
    pathlib.Path(os.environ["DRAFTMILL_TERMINATION_MESSAGE"]).write_text(json.dumps(words))
    sys.exit(code)
def wait_for_words_of(rank):
    while not pathlib.Path(os.environ["DRAFTMILL_TERMINATION_MESSAGE"]).with_name(rank).exists():
        time.sleep(0.01)
"""


def program(*by_rank: str) -> list[str]:
    """Does what is written for its rank."""
    cases = "".join(f"\nif os.environ['RANK'] == '{rank}':\n    {does}" for rank, does in enumerate(by_rank))
    return [sys.executable, "-c", RANK + cases]


def test_all_that_succeed_are_one_success() -> None:
    code, words = launch(TWO, program("end(0, '')", "end(0, '')"))

    assert (code, words.refusal) == (ExitCode.DONE, None)


def test_the_words_are_those_of_the_process_that_failed_of_its_own_accord() -> None:
    """The other one finds out first that it is alone, and says so."""
    code, words = launch(
        TWO, program("end(1, 'RankLost')", "wait_for_words_of('0'); end(2, 'ConfigurationInvalid')")
    )

    assert code == ExitCode.CONFIGURATION
    assert words.refusal is not None
    assert (words.refusal.reason, words.refusal.message) == ("ConfigurationInvalid", "rank 1")


def test_a_process_that_was_killed_without_a_word_is_a_failure_that_may_pass() -> None:
    code, words = launch(TWO, program("end(1, 'RankLost')", "os.kill(os.getpid(), signal.SIGKILL)"))

    assert (code, words.refusal) == (ExitCode.FAILED, None)


def test_each_process_is_told_its_place(tmp_path: Path) -> None:
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    place = f"','.join(os.environ[name] for name in {names})"
    write = f"pathlib.Path({str(tmp_path)!r}, os.environ['RANK']).write_text({place})"
    launch(TWO, program(write, write))
    first, second = ((tmp_path / rank).read_text().split(",") for rank in ("0", "1"))

    assert first[:4] == ["0", "0", "2", "127.0.0.1"]
    assert second[:4] == ["1", "1", "2", "127.0.0.1"]
    assert first[4] == second[4] != "0"


def test_two_processes_of_one_command_learn_what_one_learns(tmp_path: Path) -> None:
    one, two = TrainJob(tmp_path / "one"), TrainJob(tmp_path / "two")
    alone, together = start(one, 1), start(two, 2)

    assert (alone.wait(), together.wait()) == (ExitCode.DONE, ExitCode.DONE)
    weights, other = newest_weights(one.output), newest_weights(two.output)
    assert all(torch.allclose(weights[name], other[name], atol=1e-4) for name in weights)


def test_sigterm_reaches_every_process_and_what_they_did_is_saved(tmp_path: Path) -> None:
    job = TrainJob(tmp_path / "job", training={"epochs": 1000})
    process = start(job, 2)
    until(lambda: Checkpoints(job.output / CHECKPOINTS, 2).steps(), 240, "a checkpoint")
    process.terminate()

    assert process.wait() == ExitCode.INTERRUPTED


def test_ranks_do_not_outlive_a_launcher_that_was_killed(tmp_path: Path) -> None:
    job = TrainJob(tmp_path / "job", training={"epochs": 1000})
    process = start(job, 2)
    until(lambda: Checkpoints(job.output / CHECKPOINTS, 2).steps(), 240, "a checkpoint")
    ranks = children(process.pid)
    process.send_signal(signal.SIGKILL)
    process.wait()

    assert len(ranks) == 2
    until(lambda: not any(is_alive(pid) for pid in ranks), 120, "the ranks have saved and ended")


def test_a_process_that_waits_for_others_in_vain_ends_when_it_is_told(tmp_path: Path) -> None:
    job = TrainJob(tmp_path / "job", fields={"nodes": 2})
    port = str(free_port())
    place = {"PET_NNODES": "2", "PET_NODE_RANK": "0", "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": port}
    page = free_port()
    process = start(job, 1, page, **place)
    until(lambda: is_listening(int(port)), 240, "the first machine waits for the second")
    said = asyncio.run(progress_when(page, lambda _: True))
    process.terminate()

    assert process.wait(60) == ExitCode.INTERRUPTED
    assert said.worker == "0/1", "the operator takes no other answer: all machines are one worker"


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture(autouse=True)
def no_place_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' own process is no rank."""
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
