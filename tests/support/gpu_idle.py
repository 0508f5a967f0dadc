"""How long a model server had nothing to do: its own count of running requests, looked at all the time."""

from __future__ import annotations

import re
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from types import TracebackType
from typing import Self

_RUNNING = re.compile(rb"^vllm:num_requests_running\{[^}]*\} ([0-9.]+)", re.MULTILINE)
_PERIOD = 0.2


@dataclass
class BusyWatch:
    """Samples `vllm:num_requests_running` in a thread while its block runs."""

    url: Callable[[], str | None]
    samples: list[tuple[float, float]] = field(default_factory=list)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join()

    def idle_after(self, moment: float) -> float:
        """Seconds for which nothing ran, in the longest stretch of the minute that follows `moment`.

        Times at which the server did not answer count as idle.
        """
        busy = [when for when, running in self.samples if running > 0 and when - moment < 60]
        marks = [moment, *(when for when in busy if when > moment)]
        return max((after - before for before, after in pairwise(marks)), default=float("inf"))

    def busy_since(self, moment: float) -> bool:
        """Whether a request has been seen running after `moment`."""
        return any(running > 0 for when, running in self.samples if when > moment)

    def _watch(self) -> None:
        while not self._stopped.wait(_PERIOD):
            running = _requests_running(self.url())
            if running is not None:
                self.samples.append((time.monotonic(), running))


def _requests_running(url: str | None) -> float | None:
    if url is None:
        return None
    try:
        with urllib.request.urlopen(f"{url}/metrics", timeout=2) as answer:  # noqa: S310  an address of ours
            found = _RUNNING.search(answer.read())
    except OSError:
        return None
    return float(found.group(1)) if found else None
