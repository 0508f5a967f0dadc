"""Work in a thread that a process may leave behind."""

from __future__ import annotations

import subprocess
import sys

import pytest

from draftmill_jobs.shared.threads import in_daemon_thread


async def test_what_the_work_returns_is_waited_for() -> None:
    assert await in_daemon_thread(lambda: 17) == 17


async def test_what_the_work_raises_is_raised_to_whoever_waits() -> None:
    with pytest.raises(ZeroDivisionError):
        await in_daemon_thread(lambda: 1 // 0)


def test_a_process_ends_without_waiting_for_the_work() -> None:
    program = (
        "import asyncio, threading\n"
        "from draftmill_jobs.shared.threads import in_daemon_thread\n"
        "async def main():\n"
        "    in_daemon_thread(threading.Event().wait)\n"
        "asyncio.run(main())\n"
    )

    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0
