"""Kills a worker with SIGKILL at random instants until its work is done."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from draftmill_api.exitcode import ExitCode
from tests.support.forked import forkserver
from tests.support.job import Job

_START = 60.0  # seconds within which a worker must have its first new record
_END = 300.0  # seconds within which it must end when it is left alone


class Running(Protocol):
    """A process."""

    def code(self, within: float) -> int | None:
        """Its exit code, None when it has not ended within so many seconds."""
        ...

    def kill(self) -> None:
        """Ends it with SIGKILL."""
        ...


class Starter(Protocol):
    """A way to start a worker."""

    def start(self, config: Path) -> Running:
        """Starts it."""
        ...


@dataclass(frozen=True)
class ProgramWorker:
    """The worker of a step as a user starts it."""

    step: str

    def start(self, config: Path) -> Running:
        """Starts `python -m draftmill_jobs <step>`."""
        return Program([sys.executable, "-P", "-m", "draftmill_jobs", self.step, "--config", str(config)])


class Program:
    """A process of a command."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def code(self, within: float) -> int | None:
        try:
            return self._process.wait(within)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        self._process.kill()  # does nothing to one that has ended
        self._process.wait()


@dataclass(frozen=True)
class ForkedWorker:
    """The same code in a process of its own, forked from one that has imported everything already."""

    step: str

    def start(self, config: Path) -> Running:
        """Forks a worker."""
        return Forked(_work, self.step, str(config))


class Forked:
    """A function in a process of its own, forked from one that has imported everything already."""

    def __init__(self, target: Callable[..., object], *arguments: object) -> None:
        self._process = forkserver().Process(target=target, args=arguments)
        self._process.start()

    def code(self, within: float) -> int | None:
        self._process.join(within)
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()
        self._process.join()

    def ask_to_end(self) -> None:
        """Sends SIGTERM."""
        self._process.terminate()


@dataclass(frozen=True)
class ForkedWorkers:
    """Several workers of a step that share its rows, each in a process of its own."""

    step: str
    count: int

    def start(self, config: Path) -> Running:
        """Forks them all."""
        shares = [f"{index}/{self.count}" for index in range(self.count)]
        return Together([Forked(_work, self.step, str(config), share) for share in shares])


class Together:
    """Processes that end together."""

    def __init__(self, processes: list[Forked]) -> None:
        self._processes = processes

    def code(self, within: float) -> int | None:
        """The greatest of their exit codes."""
        end = time.monotonic() + within
        codes = [process.code(max(0.0, end - time.monotonic())) for process in self._processes]
        known = [code for code in codes if code is not None]
        return max(known) if len(known) == len(codes) else None

    def kill(self) -> None:
        for process in self._processes:
            process.kill()

    def terminate(self) -> None:
        """Sends SIGTERM to all, and waits for their ends."""
        for process in self._processes:
            process.ask_to_end()
        for process in self._processes:
            assert process.code(_END) in (ExitCode.INTERRUPTED, ExitCode.DONE, -signal.SIGTERM)


def _work(step: str, config: str, share: str = "0/1") -> None:
    from draftmill_api.names import WORKER_VARIABLE
    from draftmill_jobs.main import Options, Step, run_step

    os.environ[WORKER_VARIABLE] = share
    sys.exit(int(run_step(Step(step), Path(config), Options())))


def kill_until_done(
    job: Job, starter: Starter, *, kills: int, rng: random.Random, terminated: float = 0.0
) -> int:
    """Starts the worker again and again; returns how often it was killed before it ended by itself.

    Each is killed at a random instant of its work: a random time after its first new record. Before some of
    the kills, a share of them on average, workers of `ForkedWorkers` are asked to end by SIGTERM.
    """
    config = job.write()
    for number in range(kills):
        before = _bytes(job)
        with _started(starter, config) as worker:
            if not _grows(worker, lambda before=before: _bytes(job) > before):  # type: ignore[misc]
                return number
            if worker.code(rng.uniform(0.0, 0.5)) is not None:
                return number
            if isinstance(worker, Together) and rng.random() < terminated:
                worker.terminate()
            worker.kill()
    with _started(starter, config) as worker:
        assert worker.code(_END) == ExitCode.DONE
    return kills


@contextmanager
def _started(starter: Starter, config: Path) -> Iterator[Running]:
    """A worker that is gone after the block, also when the test is interrupted."""
    worker = starter.start(config)
    try:
        yield worker
    finally:
        worker.kill()


def _grows(worker: Running, has_grown: Callable[[], bool]) -> bool:
    end = time.monotonic() + _START
    while not has_grown():
        assert time.monotonic() < end, "no new record in time"
        code = worker.code(0.01)
        if code is not None:
            assert code == ExitCode.DONE
            return False
    return True


def _bytes(job: Job) -> int:
    return sum(path.stat().st_size for path in job.output.glob("*/raw_responses*"))
