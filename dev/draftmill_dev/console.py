"""Steps on the screen: a spinner where there is a terminal, plain lines elsewhere.

with console.step("Building Kubernetes") as step:
    step.note("first time: about 5 minutes")
    ...
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import TextIO

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAME_SECONDS = 0.1
_CLEAR_LINE = "\r\x1b[2K"


class Step:
    """One running step; `note` says what it is doing now."""

    def __init__(self, title: str, stream: TextIO) -> None:
        self._title = title
        self._stream = stream
        self._note = ""
        self._lock = threading.Lock()
        self._started = time.monotonic()
        self._stopped = threading.Event()
        self._spinner: threading.Thread | None = None

    def note(self, text: str) -> None:
        """Shows a short text behind the title: on a terminal the latest one, elsewhere a line each."""
        with self._lock:
            changed, self._note = text != self._note, text
        if changed and text and self._spinner is None:
            self._print(f"    {text}")

    def _begin(self) -> None:
        if self._stream.isatty():
            self._spinner = threading.Thread(target=self._spin, daemon=True)
            self._spinner.start()
        else:
            self._print(f"... {self._title}")

    def _end(self, mark: str) -> None:
        self._stopped.set()
        if self._spinner is not None:
            self._spinner.join()
            self._stream.write(_CLEAR_LINE)
        self._print(f"{mark} {self._title} ({duration(time.monotonic() - self._started)})")

    def _spin(self) -> None:
        frame = 0
        while not self._stopped.wait(_FRAME_SECONDS):
            with self._lock:
                note = f": {self._note}" if self._note else ""
            elapsed = duration(time.monotonic() - self._started)
            mark = _FRAMES[frame % len(_FRAMES)]
            self._stream.write(f"{_CLEAR_LINE}{mark} {self._title}{note} ({elapsed})")
            self._stream.flush()
            frame += 1

    def _print(self, line: str) -> None:
        self._stream.write(line + "\n")
        self._stream.flush()


@contextlib.contextmanager
def step(title: str, stream: TextIO | None = None) -> Iterator[Step]:
    """Shows a step while its block runs, and how long it took; a failed step is marked and re-raised."""
    running = Step(title, stream or sys.stderr)
    running._begin()
    try:
        yield running
    except BaseException:
        running._end("✗")
        raise
    running._end("✓")


def say(text: str = "") -> None:
    """Prints a line for people, where the steps go too."""
    print(text, file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """`0.4 s`, `12 s`, `4 min 15 s`, `1 h 5 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
