"""Several processes of one machine: one exit code, one set of last words, nobody left behind."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from draftmill_api.exitcode import ExitCode
from draftmill_jobs.train.launching import launch
from draftmill_jobs.train.places import Machine

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


@pytest.fixture(autouse=True)
def no_place_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' own process is no rank."""
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
