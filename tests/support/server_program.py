"""A server in a process of its own, which takes no time of the program that asks it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from tests.support.tiny_model import TinyModel

_REPOSITORY = Path(__file__).resolve().parents[2]


@contextmanager
def serving(arguments: Sequence[str]) -> Iterator[str]:
    """Runs a Python program that prints its port first, until the block ends; yields its address."""
    process = subprocess.Popen(
        [sys.executable, *arguments], cwd=_REPOSITORY, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.communicate()


def server_program(model: TinyModel, *options: str) -> AbstractContextManager[str]:
    """The tests' inference server."""
    return serving(["-m", "tests.support.engine_server", "--model", str(model.path), *options])


def slow_tailed_server(model: TinyModel) -> AbstractContextManager[str]:
    """The same; 8 % of its answers take 15 times as long."""
    return server_program(model, "--delay", "0.05", "--tail", "0.08")
