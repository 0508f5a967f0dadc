"""A step that is told to stop does so at once, also as the first process of its container."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from draftmill_api.exitcode import ExitCode
from draftmill_jobs.main import Step
from tests.support.waiting import until


@pytest.mark.parametrize("step", list(Step))
def test_sigterm_ends_a_step_that_has_nothing_to_save(step: Step, tmp_path: Path) -> None:
    config = tmp_path / "job.yaml"
    os.mkfifo(config)
    program = [sys.executable, "-P", "-m", "draftmill_jobs", step, "--config", str(config)]
    container = subprocess.Popen(
        ["unshare", "--pid", "--fork", "--kill-child", *program], stderr=subprocess.PIPE, text=True
    )
    with container:
        try:
            held = until(lambda: _open_for(config), 30, "the step reads its config")
            os.kill(_child(container.pid), signal.SIGTERM)
            _, said = container.communicate(timeout=10)
        finally:
            container.kill()
    os.close(held)
    assert container.returncode == ExitCode.INTERRUPTED
    assert said == "stopped by SIGTERM\n"


def test_sigterm_ends_a_step_that_waits_in_a_call_which_no_signal_interrupts() -> None:
    """A read of a volume that hangs, say; here the second lock of a mutex."""
    program = """
import ctypes, os, signal, threading
from draftmill_jobs.shared.signals import end_on_sigterm
end_on_sigterm()
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
library, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
while True:
    library.pthread_mutex_lock(mutex)
"""
    ended = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True, timeout=30, check=False
    )
    assert ended.returncode == ExitCode.INTERRUPTED
    assert ended.stderr == "stopped by SIGTERM\n"


def _open_for(pipe: Path) -> int | None:
    """The pipe, once somebody reads it."""
    try:
        return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None


def _child(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text())
