"""Being told to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
from typing import Final

from draftmill_api.exitcode import ExitCode

_ENDING: Final = threading.Lock()


def end_on_sigterm() -> None:
    """From now on SIGTERM ends the program as interrupted, until a step that has work to save takes it.

    The kernel gives the first process of a container no action of its own for SIGTERM: without this, a
    step that has just begun, or only looks, would stay for the pod's whole grace period. A thread waits for
    the signal too: Python runs a handler between two of its instructions, so one that arrives just before
    a system call that blocks (a volume that hangs) would wait for that call.
    """
    heard, arrived = socket.socketpair()
    arrived.setblocking(False)
    signal.signal(signal.SIGTERM, lambda _number, _frame: _end())
    signal.set_wakeup_fd(arrived.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=_end_when_heard, args=(heard, arrived), name="sigterm", daemon=True).start()


def _end_when_heard(heard: socket.socket, _kept_open: socket.socket) -> None:
    while signal.SIGTERM not in heard.recv(64):
        pass
    _end()


def _end() -> None:
    if not _ENDING.acquire(blocking=False):
        return
    print("stopped by SIGTERM", file=sys.stderr, flush=True)
    os._exit(ExitCode.INTERRUPTED)


def stop_on_signals() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set, in the running loop."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop
