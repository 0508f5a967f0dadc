"""The jobs' program in a process of its own, forked from one that has imported everything already."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Self


def forkserver() -> ForkServerContext:
    """What forks; its process is started once and imports everything then."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.support.preloaded"])
    return context


class ForkedProgram:
    """A step of the program, which ends with the block at the latest.

    Args:
        folder: Where a file for its output is made.
        arguments: Those of the command line.
    """

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._output = folder / "output.txt"
        self._process = forkserver().Process(target=_run, args=(str(self._output), arguments))

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()

    @property
    def pid(self) -> int:
        """Its number while it runs."""
        assert self._process.pid is not None
        return self._process.pid

    def stop(self, number: signal.Signals, within: float = 60.0) -> tuple[int | None, str]:
        """Sends a signal and waits for the end; returns exit code and output."""
        os.kill(self.pid, number)
        self._process.join(within)
        return self._process.exitcode, self._output.read_text()


def _run(output: str, arguments: tuple[str, ...]) -> None:
    from draftmill_jobs.main import main

    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    sys.exit(main(list(arguments)))
