"""The processes of one machine: started together, and all of them ended with the first that fails.

The machine's exit code and last words are those of the process that failed first of its own accord: the
others only find that it is gone.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

from pydantic import ValidationError

from draftmill_api.exitcode import ExitCode
from draftmill_api.names import TERMINATION_MESSAGE_VARIABLE
from draftmill_api.progress import TerminationMessage
from draftmill_jobs.shared.cores import usable_cores
from draftmill_jobs.train.places import Machine
from draftmill_jobs.train.world import RANK_LOST

log = logging.getLogger(__name__)

LAUNCHER_VARIABLE: Final = "DRAFTMILL_LAUNCHER"
"""In a process that was started here: who started it, and without whom it shall not go on."""
_LOOK_AGAIN: Final = 0.1  # seconds
_LAST_WORDS: Final = 15.0  # seconds in which the others find out by themselves
_PATIENCE: Final = 10.0  # seconds from the last SIGTERM to SIGKILL
_IN_ORDER: Final = (ExitCode.DONE, ExitCode.INTERRUPTED)


@dataclass(frozen=True, slots=True)
class _Rank:
    process: subprocess.Popen[bytes]
    message: Path


def launch(machine: Machine, command: Sequence[str]) -> tuple[ExitCode, TerminationMessage]:
    """Runs a command in each of a machine's processes; returns when all have ended.

    Args:
        machine: Which processes.
        command: The same for all; where each is, its environment says.

    Returns:
        The code and words of the first that failed, or of the first of all.
    """
    log.info(
        "starting %d processes of %d, which meet at %s", machine.processes, machine.ranks, machine.address
    )
    with tempfile.TemporaryDirectory(prefix="draftmill-") as folder, _told_to_stop() as is_told:
        ranks = list(_start(machine, command, Path(folder)))
        try:
            failed = _wait(ranks, is_told)
        finally:
            _end(ranks)
        chosen = _to_blame(failed) if failed else ranks[0]
        return _code(chosen), _words(chosen)


def _start(machine: Machine, command: Sequence[str], folder: Path) -> Iterator[_Rank]:
    threads = max(1, usable_cores() // machine.processes)
    for number, place in enumerate(machine.environments(machine.port or _free_port())):
        message = folder / str(number)
        own = {
            **place,
            LAUNCHER_VARIABLE: str(os.getpid()),
            TERMINATION_MESSAGE_VARIABLE: str(message),
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads)),
        }
        yield _Rank(subprocess.Popen([*command], env={**os.environ, **own}), message)


def _wait(ranks: Sequence[_Rank], is_told: list[bool]) -> list[_Rank]:
    """Waits until all have ended, or one has failed and the others have had the time to find out.

    SIGTERM is passed on; how long they may take to save then, whoever sent it decides.

    Returns:
        Those that failed, in that order.
    """
    failed: list[_Rank] = []
    ends_at: float | None = None
    has_passed_on = False
    while True:
        ended = [rank for rank in ranks if rank.process.poll() is not None]
        failed += [rank for rank in ended if rank not in failed and rank.process.returncode not in _IN_ORDER]
        if len(ended) == len(ranks) or (ends_at is not None and time.monotonic() > ends_at):
            return failed
        if failed and ends_at is None:
            ends_at = time.monotonic() + _LAST_WORDS
        if is_told and not has_passed_on:
            has_passed_on = True
            _signal(ranks, signal.SIGTERM)
        time.sleep(_LOOK_AGAIN)


def _end(ranks: Sequence[_Rank]) -> None:
    """Ends whatever still runs."""
    _signal(ranks, signal.SIGTERM)
    ends_at = time.monotonic() + _PATIENCE
    for rank in ranks:
        try:
            rank.process.wait(max(0.0, ends_at - time.monotonic()))
        except subprocess.TimeoutExpired:
            rank.process.kill()
            rank.process.wait()


def _to_blame(failed: Sequence[_Rank]) -> _Rank:
    """The first that failed for a reason of its own."""
    own = (rank for rank in failed if (said := _words(rank).refusal) and said.reason != RANK_LOST)
    silent = (rank for rank in failed if _words(rank).refusal is None)
    return next(own, None) or next(silent, None) or failed[0]


def _code(rank: _Rank) -> ExitCode:
    """Whatever is no code of ours, as that of a killed process, is a failure that may pass."""
    try:
        return ExitCode(rank.process.returncode)
    except ValueError:
        return ExitCode.FAILED


def _words(rank: _Rank) -> TerminationMessage:
    try:
        return TerminationMessage.model_validate_json(rank.message.read_bytes())
    except (FileNotFoundError, ValidationError):
        return TerminationMessage()


def _signal(ranks: Sequence[_Rank], number: signal.Signals) -> None:
    for rank in ranks:
        rank.process.send_signal(number)  # does nothing to one that has ended


@contextmanager
def _told_to_stop() -> Iterator[list[bool]]:
    """A list that is no longer empty once SIGTERM or SIGINT came."""
    told: list[bool] = []

    def note(_number: int, _frame: FrameType | None) -> None:
        told.append(True)

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def this_program(config: Path, http_port: int | None) -> list[str]:
    """The command that trains in one process."""
    port = [] if http_port is None else ["--http-port", str(http_port)]
    return [sys.executable, "-P", "-m", "draftmill_jobs", "train", "--config", str(config), *port]
