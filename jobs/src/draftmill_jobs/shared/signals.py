"""Being told to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from draftmill_api.exitcode import ExitCode


def end_on_sigterm() -> None:
    """From now on SIGTERM ends the program as interrupted, until a step that has work to save takes it.

    The kernel gives the first process of a container no action of its own for SIGTERM: without this, a
    step that has just begun, or only looks, would stay for the pod's whole grace period.
    """
    signal.signal(signal.SIGTERM, lambda _number, _frame: _end())


def _end() -> None:
    print("stopped by SIGTERM", file=sys.stderr, flush=True)
    os._exit(ExitCode.INTERRUPTED)


def stop_on_signals() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set, in the running loop."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop
